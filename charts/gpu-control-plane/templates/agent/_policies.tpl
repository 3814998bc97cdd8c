{{/* How policies recognise the program of a node, for agents and others that run there. */}}

{{- define "gpu-control-plane.policy.whom" -}}
failurePolicy: Fail
matchConditions:
  - name: asked-by-an-agent
    expression: >-
      request.userInfo.username in [
      {{- range $index, $component := rest . }}{{ if $index }}, {{ end }}'{{ include "gpu-control-plane.user" (list (first $) $component) }}'{{ end -}}
      ]
variables:
  - name: node
    expression: request.userInfo.?extra[?'authentication.kubernetes.io/node-name'][?0].orValue('')
{{- end }}

{{- define "gpu-control-plane.policy.bound" -}}
- expression: variables.node != ''
  message: >-
    The token names no node, so nobody can say whose agent this is: only the token of an agent's own pod may write.
{{- end }}

{{- define "gpu-control-plane.policy.binding" -}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  {{- include "gpu-control-plane.clusterMetadata" . | nindent 2 }}
spec:
  policyName: {{ index . 2 }}
  validationActions: [Deny]
{{- end }}
