{{/* One object for each dashboard, in the folder of Grafana that its own folder names. */}}
{{- define "helm_lib_grafana_dashboard_definitions" -}}
{{- if has "prometheus-crd" .Values.global.enabledModules }}
{{- range $path, $board := .Files.Glob "monitoring/grafana-dashboards/*/*.json" }}
{{- $folder := dir $path | base }}
---
apiVersion: deckhouse.io/v1
kind: GrafanaDashboardDefinition
metadata:
  name: d8-{{ $.Chart.Name }}-{{ $folder }}-{{ base $path | trimSuffix ".json" }}
  {{- include "helm_lib_module_labels" (list $) | nindent 2 }}
spec:
  folder: {{ title $folder }}
  definition: |
    {{- toString $board | nindent 4 }}
{{- end }}
{{- end }}
{{- end }}

{{/* One object for each file of rules, which is a list of groups. Called with (list . "namespace"). */}}
{{- define "helm_lib_prometheus_rules" -}}
{{- $root := index . 0 -}}
{{- if has "operator-prometheus-crd" $root.Values.global.enabledModules }}
{{- range $path, $groups := $root.Files.Glob "monitoring/prometheus-rules/*.yaml" }}
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {{ $root.Chart.Name }}-{{ base $path | trimSuffix ".yaml" }}
  namespace: {{ index $ 1 }}
  {{- include "helm_lib_module_labels" (list $root (dict "prometheus" "main" "component" "rules")) | nindent 2 }}
spec:
  groups:
    {{- toString $groups | fromYamlArray | toYaml | nindent 4 }}
{{- end }}
{{- end }}
{{- end }}
