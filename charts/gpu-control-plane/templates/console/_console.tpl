{{/* How people reach the console: by port-forward unless there is TLS, of its own or of an Ingress. */}}

{{- define "gpu-control-plane.consolePublicUrl" -}}
{{- with .Values.console -}}
{{- if .publicUrl }}{{ .publicUrl }}{{ else if .ingress.enabled }}https://{{ required "console.ingress.enabled needs console.ingress.host, under which people open the console." .ingress.host }}{{ end }}
{{- end }}
{{- end }}

{{- define "gpu-control-plane.consoleReachable" -}}
{{- with .Values.console }}{{ if or .tls.secretName .ingress.enabled }}yes{{ end }}{{ end }}
{{- end }}

{{/* Who we are to the identity provider: in Deckhouse, Dex names its clients itself. */}}
{{- define "gpu-control-plane.consoleClientId" -}}
{{- with .Values.console -}}
{{- if eq .deckhouse.dex "DexClient" }}dex-client-gpu-console@{{ include "gpu-control-plane.namespace" $ }}{{ else }}{{ .oidc.clientId }}{{ end }}
{{- end }}
{{- end }}
