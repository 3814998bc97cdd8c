{{/* What the DaemonSets of NVIDIA's programs have in common. */}}

{{/* Image and resources of a container. Called with (list . "gfd"), the name of the program in the values. */}}
{{- define "gpu-control-plane.bootstrap.image" -}}
{{- include "gpu-control-plane.image" . }}
{{- with (get (index . 0).Values.bootstrap (index . 1)).resources }}
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
{{- include "gpu-control-plane.rootPod" $root }}
{{- include "gpu-control-plane.pullSecrets" $root }}
{{- include "gpu-control-plane.priorityClass" (list $root "bootstrap") }}
{{- /* The runtime adds the driver's libraries and device files. */}}
{{- with $root.Values.bootstrap.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
affinity:
  {{- include "gpuControlPlane.managedNodeAffinity" $root | nindent 2 }}
nodeSelector:
  {{- include "gpuControlPlane.managedNodeSelector" $root | nindent 2 }}
tolerations:
  {{- include "gpuControlPlane.managedNodeTolerations" $root | nindent 2 }}
{{- end }}

{{/* What makes NVIDIA's runtime give a container all cards, and MIG's files with them. */}}
{{- define "gpu-control-plane.bootstrap.allCards" -}}
- {name: NVIDIA_VISIBLE_DEVICES, value: all}
- {name: NVIDIA_DRIVER_CAPABILITIES, value: all}
- {name: NVIDIA_MIG_MONITOR_DEVICES, value: all}
{{- end }}

{{/* Puts the configuration that the Node's label names where the main program reads it. Called with (list . once). */}}
{{- define "gpu-control-plane.bootstrap.configManager" }}
{{- $root := index . 0 }}
{{- include "gpu-control-plane.bootstrap.image" (list $root "gfd") }}
command: [config-manager]
env:
  - {name: ONESHOT, value: {{ index . 1 | quote }}}
  - name: NODE_NAME
    valueFrom:
      fieldRef: {fieldPath: spec.nodeName}
  - {name: NODE_LABEL, value: nvidia.com/device-plugin.config}
  - {name: CONFIG_FILE_SRCDIR, value: /available-configs}
  - {name: CONFIG_FILE_DST, value: /config/config.yaml}
  - {name: DEFAULT_CONFIG, value: {{ $root.Values.bootstrap.gfd.defaultConfig | quote }}}
  - {name: FALLBACK_STRATEGIES, value: empty}
  - {name: SEND_SIGNAL, value: {{ not (index . 1) | quote }}}
  - {name: SIGNAL, value: "1"}
  - {name: PROCESS_TO_SIGNAL, value: gpu-feature-discovery}
# Only the same user may send a signal.
{{- include "gpu-control-plane.rootContainer" $root | nindent 0 }}
volumeMounts:
  - {name: available-configs, mountPath: /available-configs, readOnly: true}
  - {name: config, mountPath: /config}
{{- end }}
