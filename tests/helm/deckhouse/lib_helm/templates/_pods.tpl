{{- define "helm_lib_module_pod_security_context_run_as_user_deckhouse" -}}
securityContext: {runAsNonRoot: true, runAsUser: 64535, runAsGroup: 64535}
{{- end }}

{{- define "helm_lib_module_pod_security_context_run_as_user_root" -}}
securityContext: {runAsNonRoot: false, runAsUser: 0, runAsGroup: 0}
{{- end }}

{{- define "helm_lib_module_container_security_context_read_only_root_filesystem_capabilities_drop_all_pss_restricted" -}}
securityContext:
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "helm_lib_module_container_security_context_read_only_root_filesystem_capabilities_drop_all" -}}
securityContext:
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "helm_lib_module_container_security_context_capabilities_drop_all_and_add" -}}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL], add: {{ index . 1 | toJson }}}
{{- end }}

{{- define "helm_lib_module_container_security_context_privileged" -}}
securityContext: {privileged: true}
{{- end }}

{{- define "helm_lib_module_container_security_context_privileged_read_only_root_filesystem" -}}
securityContext: {privileged: true, readOnlyRootFilesystem: true}
{{- end }}

{{- define "helm_lib_priority_class" }}
priorityClassName: {{ index . 1 }}
{{- end }}

{{- define "helm_lib_node_selector" }}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- if not (has $role (list "frontend" "monitoring" "system" "master")) }}{{ fail (printf "unknown strategy %q" $role) }}{{ end -}}
{{- $settings := include "stand-in.settings" $root | fromYaml -}}
{{- if $settings.nodeSelector }}
nodeSelector: {{ $settings.nodeSelector | toJson }}
{{- else if gt (get $root.Values.global.discovery.d8SpecificNodeCountByRole $role | int) 0 }}
nodeSelector:
  node-role.deckhouse.io/{{ $role }}: ""
{{- end }}
{{- end }}

{{- define "helm_lib_tolerations" }}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- $settings := include "stand-in.settings" $root | fromYaml }}
tolerations:
{{- if eq $role "wildcard" }}
- operator: "Exists"
{{- else if ne $role "system" }}{{ fail (printf "unknown strategy %q" $role) }}
{{- else if $settings.tolerations }}
{{ $settings.tolerations | toYaml }}
{{- else }}
{{- range list $root.Chart.Name $role }}
- {key: dedicated.deckhouse.io, operator: Equal, value: {{ . | quote }}}
{{- end }}
{{- end }}
{{- end }}
