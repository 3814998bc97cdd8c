{{/*
Pod Security would refuse the agent only after the installation, in an Event of its DaemonSet that nobody reads. Where
Helm talks to the cluster the level of the namespace can be seen before. Rendered without a cluster, nothing is known
and nothing is said.
*/}}
{{- define "gpu-control-plane.podSecurityAdmitsTheAgent" -}}
{{- $namespace := include "gpu-control-plane.namespace" . -}}
{{- $found := lookup "v1" "Namespace" "" $namespace | default dict -}}
{{- $level := dig "metadata" "labels" "pod-security.kubernetes.io/enforce" "privileged" $found -}}
{{- if ne $level "privileged" -}}
{{- fail (printf "Pod Security would refuse the agent: the namespace %s enforces «%s», and the agent is privileged and mounts folders of the host. If nobody else relies on that level: kubectl label namespace %s pod-security.kubernetes.io/enforce=privileged --overwrite. Else install into another namespace." $namespace $level $namespace) -}}
{{- end -}}
{{- end }}
