{{/* The metadata of an object for Prometheus or Grafana, with labels by which they find it.
     Called with (list . "name" labels). */}}
{{- define "gpu-control-plane.monitoringMetadata" -}}
name: {{ index . 1 }}
namespace: {{ include "gpu-control-plane.monitoringNamespace" (index . 0) }}
labels:
  {{- include "gpu-control-plane.labels" (list (index . 0) "monitoring") | nindent 2 }}
  {{- with index . 2 }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
