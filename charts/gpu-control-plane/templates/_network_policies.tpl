{{/* NetworkPolicies say who may come in. Where the API server is cannot be said for every cluster, so none is about
what goes out. */}}

{{/* Who may read metrics and health: a list with one rule, which holds for the port `metrics`. */}}
{{- define "gpu-control-plane.metricsIngress" -}}
- ports:
    - {port: metrics}
  {{- with .Values.networkPolicy.metricsFrom }}
  from:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
