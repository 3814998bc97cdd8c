{{/* Settings of the module, which are under its name in camel case. Called with the root. */}}
{{- define "stand-in.settings" -}}
{{- if ne .Chart.Name "gpu-control-plane" }}{{ fail "The library wants the module's own root." }}{{ end -}}
{{- required "The module's settings are missing." .Values.gpuControlPlane | toYaml -}}
{{- end }}

{{- define "helm_lib_module_labels" }}
labels:
  heritage: deckhouse
  module: {{ (index . 0).Chart.Name }}
  {{- if gt (len .) 1 }}
  {{- index . 1 | toYaml | nindent 2 }}
  {{- end }}
{{- end }}

{{/* By digest only: an image that was not built is an error. */}}
{{- define "helm_lib_module_image" }}
{{- $root := index . 0 -}}
{{- $digests := get $root.Values.global.modulesImages.digests "gpuControlPlane" -}}
{{- $digest := get $digests (index . 1) | required (printf "Image gpuControlPlane.%s has no digest" (index . 1)) -}}
{{- $settings := include "stand-in.settings" $root | fromYaml -}}
{{- $base := ($settings.registry).base | default $root.Values.global.modulesImages.registry.base -}}
{{ printf "%s/%s@%s" $base $root.Chart.Name $digest }}
{{- end }}

{{- define "helm_lib_is_ha_to_value" }}
{{- $root := index . 0 -}}
{{- $settings := include "stand-in.settings" $root | fromYaml -}}
{{- $high := $root.Values.global.discovery.clusterControlPlaneIsHighlyAvailable -}}
{{- range list $root.Values.global $settings -}}
{{- if hasKey . "highAvailability" }}{{ $high = .highAvailability }}{{ end -}}
{{- end -}}
{{- ternary (index . 1) (index . 2) $high -}}
{{- end }}

{{- define "helm_lib_module_public_domain" }}
{{- printf (index . 0).Values.global.modules.publicDomainTemplate (index . 1) -}}
{{- end }}

{{- define "helm_lib_module_ingress_class" -}}
{{- $settings := include "stand-in.settings" . | fromYaml -}}
{{ $settings.ingressClass | default .Values.global.modules.ingressClass }}
{{- end }}

{{- define "helm_lib_module_https_mode" -}}
{{ .Values.global.modules.https.mode }}
{{- end }}

{{- define "helm_lib_module_https_cert_manager_cluster_issuer_name" -}}
{{ .Values.global.modules.https.certManager.clusterIssuerName }}
{{- end }}
