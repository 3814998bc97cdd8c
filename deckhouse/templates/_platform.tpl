{{/*
What differs in Deckhouse, all of it: the helpers of the chart's file of the same name, built on Deckhouse's library.
They are called with the chart's context (_chart.tpl); the library wants the module's, which is .Deckhouse.
*/}}

{{/* The namespace of the module, whatever that of the release: Deckhouse keeps releases in d8-system. */}}
{{- define "gpu-control-plane.namespace" -}}
d8-gpu-operator
{{- end }}

{{/* Objects that our own programs write must not have the label `heritage: deckhouse`: Deckhouse refuses that to all but
itself. So the templates shared with the chart get the module's name alone. */}}
{{- define "gpu-control-plane.platformLabels" }}
module: {{ .Chart.Name }}
{{- end }}

{{/* The image of a component, by its digest: the agent's, one of NVIDIA's, or the controller's, which the console and
jobs have as well. Called with (list . "agent"). */}}
{{- define "gpu-control-plane.image" -}}
{{- $images := dict "agent" "agent" "discovery" "agent" "gfd" "gfd" "dcgm" "dcgm" "dcgmExporter" "dcgmExporter" "validator" "validator" -}}
image: {{ include "helm_lib_module_image" (list (index . 0).Deckhouse (get $images (index . 1) | default "controller")) | trim }}
imagePullPolicy: IfNotPresent
{{- end }}

{{/* What opens the registry, for every pod. */}}
{{- define "gpu-control-plane.pullSecrets" }}
imagePullSecrets:
  - name: gpu-control-plane-registry
{{- end }}

{{/* A pod that needs nothing of the node: it passes the «restricted» Pod Security Standard. */}}
{{- define "gpu-control-plane.restrictedPod" -}}
{{ include "helm_lib_module_pod_security_context_run_as_user_deckhouse" .Deckhouse | trim }}
{{- end }}

{{/* A container of such a pod. */}}
{{- define "gpu-control-plane.restrictedContainer" -}}
{{ include "helm_lib_module_container_security_context_read_only_root_filesystem_capabilities_drop_all_pss_restricted" .Deckhouse | trim }}
{{- end }}

{{/* A pod whose programs use files of root's on the node. */}}
{{- define "gpu-control-plane.rootPod" }}
{{ include "helm_lib_module_pod_security_context_run_as_user_root" .Deckhouse | trim }}
{{- end }}

{{/* The agent. Device files of cards come and go with the driver, so nobody can list them beforehand. */}}
{{- define "gpu-control-plane.agentContainer" -}}
{{ include "helm_lib_module_container_security_context_privileged_read_only_root_filesystem" .Deckhouse | trim }}
{{- end }}

{{/* A program of NVIDIA's that opens device files which come and go with the driver, or MIG's files, which are root's. */}}
{{- define "gpu-control-plane.privilegedContainer" -}}
{{ include "helm_lib_module_container_security_context_privileged" .Deckhouse | trim }}
{{- end }}

{{/* A program of NVIDIA's that needs files of root's on the node, and nothing else. */}}
{{- define "gpu-control-plane.rootContainer" -}}
{{ include "helm_lib_module_container_security_context_read_only_root_filesystem_capabilities_drop_all" .Deckhouse | trim }}
{{- end }}

{{/* DCGM's exporter. With SYS_ADMIN it reads profiling counters itself, where there is no engine to ask. With an engine it
still ends without NVML, and by SYS_ADMIN NVIDIA's runtime knows the containers that may have all cards: on nodes of a
bring-up it heeds no others. */}}
{{- define "gpu-control-plane.exporterContainer" -}}
{{ include "helm_lib_module_container_security_context_capabilities_drop_all_and_add" (list .Deckhouse (list "SYS_ADMIN")) | trim }}
{{- end }}

{{/* Never: NodeGroupConfigurations set up container runtimes, and the module has no setting by which agents would. */}}
{{- define "gpu-control-plane.agentsConfigureRuntimes" -}}
{{- end }}

{{/* How important pods are. Called with (list . "agent"), the section of the chart's values. */}}
{{- define "gpu-control-plane.priorityClass" -}}
{{- $root := index . 0 -}}
{{- with (get $root.Values (index . 1)).priorityClassName }}
{{ include "helm_lib_priority_class" (tuple $root.Deckhouse .) | trim }}
{{- end }}
{{- end }}

{{/* Where controllers run, as do the console and jobs. */}}
{{- define "gpu-control-plane.controllerPlacement" -}}
{{ include "helm_lib_node_selector" (tuple .Deckhouse "system") | trim }}
{{ include "helm_lib_tolerations" (tuple .Deckhouse "system") | trim }}
{{- end }}

{{/* Discovery runs on every node: a tainted one may be the one with the cards. */}}
{{- define "gpu-control-plane.everyNodeTolerations" -}}
{{ (include "helm_lib_tolerations" (tuple .Deckhouse "wildcard") | fromYaml).tolerations | toYaml }}
{{- end }}

{{/* Taints that keep nothing off managed nodes (_managed_nodes.tpl) that looks after their cards: none does. */}}
{{- define "gpuControlPlane.managedNodeTolerations" -}}
{{ (include "helm_lib_tolerations" (tuple .Deckhouse "wildcard") | fromYaml).tolerations | toYaml }}
{{- end }}

{{/* Deckhouse's Prometheus takes monitors from its own namespace. */}}
{{- define "gpu-control-plane.monitoringNamespace" -}}
d8-monitoring
{{- end }}

{{/* The domain of Services. */}}
{{- define "gpu-control-plane.clusterDomain" -}}
{{ .Deckhouse.Values.global.discovery.clusterDomain | default "cluster.local" }}
{{- end }}

{{/* When jobs run that make the cluster ready for a release: after it, since it brings the namespace. */}}
{{- define "gpu-control-plane.beforeRelease" -}}
post-install,post-upgrade
{{- end }}
