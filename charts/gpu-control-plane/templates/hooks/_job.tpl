{{/*
A job that Helm runs before or after the release, with an account and rights of its own, all of which go when it has
succeeded. Called with a dict: root, name, when (Helm's hooks), command (a list), clusterRules, rules and operandRules
(YAML; the last hold in the namespace of the operands), weight (0) where one job has to come after another, retries (3),
and logs, for when Helm prints what the job says (hook-failed).
*/}}
{{- define "gpu-control-plane.hook" -}}
{{- $root := .root -}}
{{- $name := printf "gpu-control-plane-%s" .name -}}
{{- $namespace := include "gpu-control-plane.namespace" $root -}}
{{- $rights := add (.weight | default 0) -10 -}}
{{- $bindings := add (.weight | default 0) -5 -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "gpu-control-plane.metadata" (list $root .name $name) | nindent 2 }}
  {{- include "gpu-control-plane.hookAnnotations" (dict "when" .when "weight" $rights) | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  {{- include "gpu-control-plane.clusterMetadata" (list $root .name (printf "gpu-control-plane:%s" .name)) | nindent 2 }}
  {{- include "gpu-control-plane.hookAnnotations" (dict "when" .when "weight" $rights) | nindent 2 }}
rules:
  {{- .clusterRules | trim | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- include "gpu-control-plane.clusterMetadata" (list $root .name (printf "gpu-control-plane:%s" .name)) | nindent 2 }}
  {{- include "gpu-control-plane.hookAnnotations" (dict "when" .when "weight" $bindings) | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "gpu-control-plane:{{ .name }}"}
subjects:
  - {kind: ServiceAccount, name: {{ $name }}, namespace: {{ $namespace }}}
{{- $operands := include "gpu-control-plane.operandNamespace" $root -}}
{{- range $role := list (list $name $namespace .rules) (list (printf "%s-operands" $name) $operands .operandRules) }}
{{- with index $role 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "gpu-control-plane.clusterMetadata" (list $root $.name (index $role 0)) | nindent 2 }}
  namespace: {{ index $role 1 }}
  {{- include "gpu-control-plane.hookAnnotations" (dict "when" $.when "weight" $rights) | nindent 2 }}
rules:
  {{- . | trim | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "gpu-control-plane.clusterMetadata" (list $root $.name (index $role 0)) | nindent 2 }}
  namespace: {{ index $role 1 }}
  {{- include "gpu-control-plane.hookAnnotations" (dict "when" $.when "weight" $bindings) | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ index $role 0 }}}
subjects:
  - {kind: ServiceAccount, name: {{ $name }}, namespace: {{ $namespace }}}
{{- end }}
{{- end }}
---
apiVersion: batch/v1
kind: Job
metadata:
  {{- include "gpu-control-plane.metadata" (list $root .name $name) | nindent 2 }}
  {{- include "gpu-control-plane.hookAnnotations" (dict "when" .when "weight" (.weight | default 0)) | nindent 2 }}
    # Helm 3.18 and newer print what the job said, so that nobody has to look for the pod.
    helm.sh/hook-output-log-policy: {{ .logs | default "hook-failed" }}
spec:
  backoffLimit: {{ dig "retries" 3 . }}
  activeDeadlineSeconds: 300
  template:
    metadata:
      labels:
        {{- include "gpu-control-plane.labels" (list $root .name) | nindent 8 }}
    spec:
      restartPolicy: Never
      serviceAccountName: {{ $name }}
      {{- include "gpu-control-plane.restrictedPod" $root | nindent 6 }}
      {{- include "gpu-control-plane.pullSecrets" $root | nindent 6 }}
      {{- include "gpu-control-plane.controllerPlacement" $root | nindent 6 }}
      containers:
        - name: {{ .name }}
          {{- include "gpu-control-plane.image" (list $root .name) | nindent 10 }}
          command:
            {{- toYaml .command | nindent 12 }}
          {{- include "gpu-control-plane.restrictedContainer" $root | nindent 10 }}
          resources:
            requests: {cpu: 50m, memory: 64Mi, ephemeral-storage: 10Mi}
            limits: {memory: 512Mi}
{{- end }}

{{- define "gpu-control-plane.hookAnnotations" -}}
annotations:
  helm.sh/hook: {{ .when }}
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
