{{/* What the pods of all components have in common. */}}

{{/* The image of this release. */}}
{{- define "gpu-control-plane.image" -}}
{{- with .Values.image -}}
image: {{ if .digest }}{{ printf "%s@%s" .repository .digest | quote }}{{ else }}{{ printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) | quote }}{{ end }}
imagePullPolicy: {{ .pullPolicy }}
{{- end }}
{{- end }}

{{- define "gpu-control-plane.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A process that needs nothing of the node: it passes the «restricted» Pod Security Standard. */}}
{{- define "gpu-control-plane.restrictedPod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 64535
  runAsGroup: 64535
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "gpu-control-plane.restrictedContainer" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

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
