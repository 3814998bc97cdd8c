{{/* What the pods of all components have in common. */}}

{{/* Every program of ours says at these addresses how it is. */}}
{{- define "gpu-control-plane.probes" -}}
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{- /* The terms by which a pod stays off nodes that are known to have cards, given how strictly: Avoid, Never or Allow.
Before the first cards are found, only the labels of others tell. */}}
{{- define "gpu-control-plane.offGPUNodes" -}}
{{- $terms := dict "matchExpressions" (list
  (dict "key" "gpu.deckhouse.io/gpu.present" "operator" "NotIn" "values" (list "true"))
  (dict "key" "nvidia.com/gpu.present" "operator" "NotIn" "values" (list "true"))
  (dict "key" "feature.node.kubernetes.io/pci-10de.present" "operator" "NotIn" "values" (list "true"))) }}
{{- if eq . "Avoid" }}
preferredDuringSchedulingIgnoredDuringExecution:
  - weight: 100
    preference: {{- toYaml $terms | nindent 6 }}
{{- else if eq . "Never" }}
requiredDuringSchedulingIgnoredDuringExecution:
  nodeSelectorTerms:
    - {{- toYaml $terms | nindent 6 }}
{{- end }}
{{- end }}
