{{/*
There is one control plane in a cluster, so its objects have fixed names: they read as they are in these templates, and
Helm refuses a second release. What is shared is here.
*/}}

{{/* Labels by which a component's pods are found; they never change. Called with (list . "component"). */}}
{{- define "gpu-control-plane.selector" -}}
app.kubernetes.io/name: gpu-control-plane
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* All labels of a component's objects. Called with (list . "component"). */}}
{{- define "gpu-control-plane.labels" -}}
{{- $root := index . 0 -}}
{{ include "gpu-control-plane.selector" . }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- include "gpu-control-plane.platformLabels" $root }}
{{- end }}

{{/* The metadata of an object without namespace. Called with (list . "component" "name"). */}}
{{- define "gpu-control-plane.clusterMetadata" -}}
name: {{ index . 2 }}
labels:
  {{- include "gpu-control-plane.labels" . | nindent 2 }}
{{- end }}

{{/* The metadata of an object in our namespace. Called with (list . "component" "name"). */}}
{{- define "gpu-control-plane.metadata" -}}
{{ include "gpu-control-plane.clusterMetadata" . }}
namespace: {{ include "gpu-control-plane.namespace" (index . 0) }}
{{- end }}

{{/* The namespace of the operands. */}}
{{- define "gpu-control-plane.operandNamespace" -}}
{{- $namespace := .Values.operator.namespace | default (include "gpu-control-plane.namespace" .) -}}
{{- if has $namespace (include "gpu-control-plane.sharedNamespaces" . | fromYamlArray) -}}
{{- fail (printf "operator.namespace: operands are privileged, and %s is for everybody: name a namespace of their own, or leave it out." $namespace) -}}
{{- end -}}
{{ $namespace }}
{{- end }}

{{/* Namespaces that users have: whatever a service account there writes would be believed to be ours. */}}
{{- define "gpu-control-plane.sharedNamespaces" -}}
[default, kube-public, kube-node-lease]
{{- end }}

{{/* A file that is generated for the default namespace, as one for ours. Called with (list . "path"). */}}
{{- define "gpu-control-plane.generated" -}}
{{- $root := index . 0 -}}
{{ $root.Files.Get (index . 1) | replace "d8-gpu-operator" (include "gpu-control-plane.namespace" $root) }}
{{- end }}

{{/* As whom the API server knows a component. Called with (list . "component"). */}}
{{- define "gpu-control-plane.user" -}}
system:serviceaccount:{{ include "gpu-control-plane.namespace" (index . 0) }}:gpu-control-plane-{{ index . 1 }}
{{- end }}
