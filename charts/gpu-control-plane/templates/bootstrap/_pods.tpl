{{/* What the DaemonSets of NVIDIA's programs have in common. */}}

{{/* Image and resources of a container. Called with (list . "section"), the name of the program in the values. */}}
{{- define "gpu-control-plane.bootstrap.image" -}}
{{- $root := index . 0 -}}
{{- $section := get $root.Values.bootstrap (index . 1) -}}
image: {{ required (printf "bootstrap.%s.enabled needs bootstrap.%s.image: where you keep this image of NVIDIA's, with its tag or digest." (index . 1) (index . 1)) $section.image | quote }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
{{- with $section.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* How pods are replaced and found. Called with (list . "component"). */}}
{{- define "gpu-control-plane.bootstrap.rollout" -}}
revisionHistoryLimit: 2
updateStrategy:
  type: RollingUpdate
  rollingUpdate: {maxUnavailable: {{ (index . 0).Values.bootstrap.maxUnavailable }}}
selector:
  matchLabels:
    {{- include "gpu-control-plane.selector" . | nindent 4 }}
{{- end }}

{{/* As whom and where pods run. Called with (list . "component"). */}}
{{- define "gpu-control-plane.bootstrap.pod" -}}
{{- $root := index . 0 -}}
serviceAccountName: gpu-control-plane-{{ index . 1 }}
{{- include "gpu-control-plane.pullSecrets" $root }}
{{- with $root.Values.bootstrap.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- /* The runtime adds the driver's libraries and device files. */}}
{{- with $root.Values.bootstrap.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
affinity:
  {{- include "gpu.managedNode.affinity" $root | nindent 2 }}
nodeSelector:
  {{- include "gpu.managedNode.nodeSelector" $root | nindent 2 }}
tolerations:
  {{- include "gpu.managedNode.tolerations" $root | nindent 2 }}
{{- end }}

{{/* What makes NVIDIA's runtime give a container all cards, and MIG's files with them. */}}
{{- define "gpu-control-plane.bootstrap.allCards" -}}
- {name: NVIDIA_VISIBLE_DEVICES, value: all}
- {name: NVIDIA_DRIVER_CAPABILITIES, value: all}
- {name: NVIDIA_MIG_MONITOR_DEVICES, value: all}
{{- end }}
