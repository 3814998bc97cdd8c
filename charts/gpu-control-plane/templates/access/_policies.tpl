{{/* The names of the policies and their bindings, as the keys of a map: each of them once. */}}
{{- define "gpu-control-plane.policyNames" -}}
{{- range (.Files.Get "files/admission-policies.yaml" | fromYaml).policies }}
{{ .metadata.name }}: true
{{- end }}
{{- end }}
