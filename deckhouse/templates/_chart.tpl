{{/*
What the chart's templates see as their root: the module's own, but for Values. These are the chart's defaults, changed by
the settings of the module, which have the chart's names wherever they mean the same. Called with (list . dict); the dict
is filled in, since a template can only return text.
*/}}
{{- define "gpuControlPlane.chartContext" -}}
{{- $module := index . 0 -}}
{{- $context := index . 1 -}}
{{- range list "Chart" "Release" "Files" "Capabilities" -}}
{{- $_ := set $context . (index $module .) -}}
{{- end -}}
{{- $_ := set $context "Deckhouse" $module -}}
{{- $defaults := $module.Files.Get "files/chart-values.yaml" | fromYaml -}}
{{- $settings := include "gpuControlPlane.chartValues" $module | fromYaml -}}
{{- if hasKey $settings "Error" }}{{ fail $settings.Error }}{{ end -}}
{{- $_ := set $context "Values" (mustMergeOverwrite $defaults $settings) -}}
{{- end }}

{{/* The values that settings and Deckhouse itself stand for, as YAML. */}}
{{- define "gpuControlPlane.chartValues" -}}
{{- $settings := .Values.gpuControlPlane -}}
{{- $scraped := dict "enabled" $settings.monitoring.serviceMonitor "labels" (dict "prometheus" "main") -}}
{{- $autoscaled := and
    (has "vertical-pod-autoscaler" .Values.global.enabledModules)
    (.Capabilities.APIVersions.Has "autoscaling.k8s.io/v1/VerticalPodAutoscaler") -}}
{{- $same := pick $settings "managedNodes" "bootstrap" "discovery" "agent" "operator" "ray" "webhook" "access" | deepCopy -}}
{{- $bootstrap := dict
    "migStrategy" (lower $settings.bootstrap.migStrategy)
    "dcgmExporter" (dict "serviceMonitor" (mustMergeOverwrite (deepCopy $scraped) $settings.bootstrap.dcgmExporter.serviceMonitor)) -}}
{{- $ours := dict
    "logLevel" (get (dict "Debug" "debug" "Info" "info" "Warn" "warning" "Error" "error") $settings.logLevel)
    "controller" (dict "replicas" (include "helm_lib_is_ha_to_value" (list . 2 1) | trim | int))
    "bootstrap" $bootstrap
    "access" (dict "deckhousePolicies" true)
    "monitoring" (dict "serviceMonitors" $scraped)
    "verticalPodAutoscaler" (dict "enabled" $autoscaled)
    "console" (include "gpuControlPlane.consoleValues" . | fromYaml) -}}
{{- mustMergeOverwrite $same $ours | toYaml -}}
{{- end }}

{{/* The console's: Deckhouse has the name of the host, the certificate and the sign-in. */}}
{{- define "gpuControlPlane.consoleValues" -}}
{{- $console := .Values.gpuControlPlane.console -}}
enabled: {{ $console.enabled }}
{{- if $console.enabled }}
ingress:
  enabled: true
  host: {{ include "helm_lib_module_public_domain" (list . "gpu") | trim }}
  className: {{ include "helm_lib_module_ingress_class" . | trim | quote }}
  tlsSecretName: {{ include "gpuControlPlane.consoleCertificate" . }}
deckhouse:
  dex: DexAuthenticator
  allowedGroups: {{ $console.allowedUserGroups | toJson }}
{{- end }}
{{- end }}

{{/* The Secret with the console's certificate. */}}
{{- define "gpuControlPlane.consoleCertificate" -}}
{{- $given := .Values.gpuControlPlane.console.tlsSecretName -}}
{{- if and (not $given) (ne (include "helm_lib_module_https_mode" . | trim) "CertManager") -}}
{{- fail "The console needs a certificate: name its Secret in console.tlsSecretName, or set https.mode to CertManager in the cluster's settings." -}}
{{- end -}}
{{ $given | default "gpu-console-tls" }}
{{- end }}
