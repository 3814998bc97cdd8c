{{/* What the agent is told about the container runtime: to configure it, or to take back what an agent wrote. */}}
{{- define "gpu-control-plane.runtimeOptions" -}}
{{- with .Values.agent.runtime -}}
{{- if and .default (not .nvidiaRuntime) -}}
{{- fail "agent.runtime.default needs agent.runtime.nvidiaRuntime: where NVIDIA's runtime is on the nodes." -}}
{{- end -}}
{{- if .configure -}}
- --configure-runtime
- --runtime={{ .name }}
{{- with .config }}
- --runtime-config={{ . }}
{{- end }}
{{- with .program }}
- --runtime-program={{ . }}
{{- end }}
{{- with .unit }}
- --runtime-unit={{ . }}
{{- end }}
{{- with .nvidiaRuntime }}
- --nvidia-runtime={{ . }}
{{- end }}
{{- if .default }}
- --default-runtime
{{- end }}
{{- if .restart }}
- --restart-runtime
{{- end }}
{{- else -}}
- --undo-runtime
{{- end }}
{{- end }}
{{- end }}
