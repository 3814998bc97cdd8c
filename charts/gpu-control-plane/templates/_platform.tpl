{{/*
What differs between platforms, all of it: this file is for plain Kubernetes. The Deckhouse module is made of the same
templates with another file of the same helpers (deckhouse/templates/_platform.tpl). A pod asks here for its image, its
security contexts, its priority and its place, and never says them itself.
*/}}

{{/*
The namespace of our programs: that of the release, and every program is told it. It cannot be one that tenants share.
*/}}
{{- define "gpu-control-plane.namespace" -}}
{{- if has .Release.Namespace (include "gpu-control-plane.sharedNamespaces" . | fromYamlArray) -}}
{{- fail (printf "The GPU control plane needs a namespace of its own, and %s is for everybody: add -n d8-gpu-operator --create-namespace, or any other name." .Release.Namespace) -}}
{{- end -}}
{{ .Release.Namespace }}
{{- end }}

{{/* Labels that the platform wants on every object, beside our own. */}}
{{- define "gpu-control-plane.platformLabels" -}}
{{- end }}

{{/* The image of a component: of NVIDIA's program, named as in `bootstrap`, or the one that has all of ours. Called with
(list . "agent"). */}}
{{- define "gpu-control-plane.image" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $ours := $root.Values.image -}}
{{- if has $component (list "gfd" "dcgm" "dcgmExporter" "validator") -}}
{{- $theirs := (get $root.Values.bootstrap $component).image -}}
image: {{ required (printf "bootstrap.%s.enabled needs bootstrap.%s.image: where you keep this image of NVIDIA's, with its tag or digest." $component $component) $theirs | quote }}
{{- else if $ours.digest -}}
image: {{ printf "%s@%s" $ours.repository $ours.digest | quote }}
{{- else -}}
image: {{ printf "%s:%s" $ours.repository ($ours.tag | default $root.Chart.AppVersion) | quote }}
{{- end }}
imagePullPolicy: {{ $ours.pullPolicy }}
{{- end }}

{{/* What opens the registry, for every pod. */}}
{{- define "gpu-control-plane.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A pod that needs nothing of the node: it passes the «restricted» Pod Security Standard. */}}
{{- define "gpu-control-plane.restrictedPod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 64535
  runAsGroup: 64535
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* A container of such a pod. */}}
{{- define "gpu-control-plane.restrictedContainer" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* A pod whose programs use files of root's on the node. Each container says so itself here. */}}
{{- define "gpu-control-plane.rootPod" -}}
{{- end }}

{{/* The agent. The kubelet's sockets and the folder of CDI specifications are root's. To configure the container runtime
it enters the host's file system. */}}
{{- define "gpu-control-plane.agentContainer" -}}
securityContext:
  runAsUser: 0
  readOnlyRootFilesystem: true
  {{- if or (eq .Values.agent.hardware "real") .Values.agent.runtime.configure }}
  # Device files of cards and MIG instances come and go with the driver, so nobody can list them beforehand,
  # and the device control group would refuse to open them.
  privileged: true
  {{- else }}
  allowPrivilegeEscalation: false
  # Simulated cards have device files that behave like /dev/null.
  capabilities: {drop: [ALL], add: [MKNOD]}
  seccompProfile: {type: RuntimeDefault}
  {{- end }}
{{- end }}

{{/* A program of NVIDIA's that opens device files which come and go with the driver, or MIG's files, which are root's. */}}
{{- define "gpu-control-plane.privilegedContainer" -}}
securityContext:
  privileged: true
{{- end }}

{{/* A program of NVIDIA's that needs files of root's on the node, and nothing else. */}}
{{- define "gpu-control-plane.rootContainer" -}}
securityContext:
  runAsUser: 0
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* DCGM's exporter: the kubelet's socket is root's. With SYS_ADMIN it reads profiling counters itself, where there is no
engine to ask; with an engine it still ends without NVML, and a node may give cards by name to such containers alone. */}}
{{- define "gpu-control-plane.exporterContainer" -}}
securityContext:
  runAsUser: 0
  capabilities: {drop: [ALL], add: [SYS_ADMIN]}
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Whether agents may ever have written into configuration files of container runtimes. */}}
{{- define "gpu-control-plane.agentsConfigureRuntimes" -}}
true
{{- end }}

{{/* How important pods are, if that is said. Classes of our own, where they are made, take the place of Kubernetes' own.
Called with (list . "agent"), the section of the values. */}}
{{- define "gpu-control-plane.priorityClass" -}}
{{- $values := (index . 0).Values -}}
{{- with (get $values (index . 1)).priorityClassName }}
priorityClassName: {{ if $values.priorityClasses.create }}{{ . | replace "system-cluster-critical" "gpu-control-plane-cluster-critical" | replace "system-node-critical" "gpu-control-plane-node-critical" }}{{ else }}{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/* Where controllers run, as do the console and jobs. */}}
{{- define "gpu-control-plane.controllerPlacement" -}}
{{- with .Values.controller.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.controller.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Discovery runs on every node: a tainted one may be the one with the cards. */}}
{{- define "gpu-control-plane.everyNodeTolerations" -}}
- operator: Exists
{{- end }}

{{/* Taints that keep nothing off managed nodes (_managed_nodes.tpl) that looks after their cards. */}}
{{- define "gpuControlPlane.managedNodeTolerations" -}}
{{- toYaml .Values.managedNodes.tolerations }}
{{- end }}

{{/* Where Prometheus looks for monitors, rules and dashboards. */}}
{{- define "gpu-control-plane.monitoringNamespace" -}}
{{ include "gpu-control-plane.namespace" . }}
{{- end }}

{{/* The domain of Services. */}}
{{- define "gpu-control-plane.clusterDomain" -}}
cluster.local
{{- end }}

{{/* When jobs run that make the cluster ready for a release. */}}
{{- define "gpu-control-plane.beforeRelease" -}}
pre-install,pre-upgrade
{{- end }}
