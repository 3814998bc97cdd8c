{{/* What the jobs of this folder may do; each rule says for what. */}}

{{- define "gpu-control-plane.installRules" }}
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames:
    - gpudevices.gpu.deckhouse.io
    - gpunodestates.gpu.deckhouse.io
    - gpupools.gpu.deckhouse.io
    - gpuapprovals.gpu.deckhouse.io
    - clusterpolicies.nvidia.com
    - nvidiadrivers.nvidia.com
    - rayclusters.ray.io
    - rayjobs.ray.io
    - rayservices.ray.io
    - raycronjobs.ray.io
    - nodefeatures.nfd.k8s-sigs.io
  verbs: [get, patch]
# A server-side apply of something new needs create; RBAC cannot name what does not exist yet.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [create]
{{- if and .Values.ray.enabled (not .Values.ray.watchNamespace) }}
# It refuses to bring an operator of Ray beside a KubeRay of which that would not know.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [ray-operator-leader]
  verbs: [list]
# Anybody may write such a Lease where he may write anything: what counts is what the pod that holds it may do.
- apiGroups: [""]
  resources: [pods]
  verbs: [get]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}
# The installer refuses a level of Pod Security that would refuse the agent.
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [{{ include "gpu-control-plane.namespace" . }}]
  verbs: [get]
{{- end }}

{{- define "gpu-control-plane.declareRules" }}
{{- if .Values.clusterPolicy.create }}
- apiGroups: [nvidia.com]
  resources: [clusterpolicies]
  resourceNames: [{{ .Values.clusterPolicy.name }}]
  verbs: [get, patch]
{{- end }}
{{- if .Values.nvidiaDriver.create }}
- apiGroups: [nvidia.com]
  resources: [nvidiadrivers]
  resourceNames: [{{ .Values.nvidiaDriver.name }}]
  verbs: [get, patch]
{{- end }}
# It makes what is missing; RBAC cannot name what does not exist yet.
- apiGroups: [nvidia.com]
  resources:
    {{- if .Values.clusterPolicy.create }}
    - clusterpolicies
    {{- end }}
    {{- if .Values.nvidiaDriver.create }}
    - nvidiadrivers
    {{- end }}
  verbs: [create]
{{- end }}

{{- define "gpu-control-plane.cleanupClusterRules" }}
# A finalizer that nobody takes off any more would keep pools, and their CRD, from ever being deleted.
- apiGroups: [gpu.deckhouse.io]
  resources: [gpupools]
  verbs: [list, patch]
# Which taints of Nodes are those of pools.
- apiGroups: [gpu.deckhouse.io]
  resources: [gpunodestates]
  verbs: [list]
# These taints, labels that brought the agent and the operands, and those of feature discovery.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, patch]
# The admission policies go last: as long as agents run, pods have to be judged.
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingadmissionpolicies, validatingadmissionpolicybindings]
  resourceNames:
    {{- range $name, $_ := include "gpu-control-plane.policyNames" . | fromYaml }}
    - {{ $name }}
    {{- end }}
  verbs: [delete]
# Whether NVIDIA's operator is in charge: the labels of operands are its own then.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [53822513.nvidia.com]
  verbs: [list]
{{- if .Values.ray.enabled }}
# And whether KubeRay's is; if not, finalizers that nobody takes off any more would keep objects of Ray for ever.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [ray-operator-leader]
  verbs: [list]
# Anybody may write such a Lease where he may write anything: what counts is what the pod that holds it may do.
- apiGroups: [""]
  resources: [pods]
  verbs: [get]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
- apiGroups: [ray.io]
  resources: [rayclusters, rayjobs, rayservices, raycronjobs]
  verbs: [list, patch]
{{- end }}
{{- if .Values.crds.removeOnUninstall }}
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames:
    - gpudevices.gpu.deckhouse.io
    - gpunodestates.gpu.deckhouse.io
    - gpupools.gpu.deckhouse.io
    - gpuapprovals.gpu.deckhouse.io
    - clusterpolicies.nvidia.com
    - nvidiadrivers.nvidia.com
    - rayclusters.ray.io
    - rayjobs.ray.io
    - rayservices.ray.io
    - raycronjobs.ray.io
    - nodefeatures.nfd.k8s-sigs.io
  verbs: [get, delete]
# The CRDs of these stay as long as there is one: drivers run by it.
- apiGroups: [nvidia.com]
  resources: [clusterpolicies, nvidiadrivers]
  verbs: [list]
# And of these: jobs run by them.
- apiGroups: [ray.io]
  resources: [rayclusters, rayjobs, rayservices, raycronjobs]
  verbs: [list]
{{- end }}
{{- end }}

{{- define "gpu-control-plane.cleanupRules" }}
# It waits until our own programs have ended.
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
# The index of who may use which pool.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [gpu-pool-access]
  verbs: [delete]
# What agents and discovery have published.
- apiGroups: [nfd.k8s-sigs.io]
  resources: [nodefeatures]
  verbs: [list, delete]
{{- end }}

{{- define "gpu-control-plane.cleanupOperandRules" }}
# DaemonSets whose controller died while it let them go wait for a finalizer to be taken off;
- apiGroups: [apps]
  resources: [daemonsets]
  verbs: [list, patch]
# their pods, drivers, are made nobody's first, or they would go as well.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, patch]
{{- end }}

{{/* Called with the namespaces. */}}
{{- define "gpu-control-plane.labelNamespacesRules" }}
# It adds one label, where nobody has set that.
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: {{ toJson . }}
  verbs: [get, patch]
{{- end }}

{{- define "gpu-control-plane.testClusterRules" }}
# Whether our kinds are served.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames:
    - gpuapprovals.gpu.deckhouse.io
    - gpudevices.gpu.deckhouse.io
    - gpunodestates.gpu.deckhouse.io
    - gpupools.gpu.deckhouse.io
    - nodefeatures.nfd.k8s-sigs.io
  verbs: [get]
# Whether the API server knows whom to ask, and trusts the answer.
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingwebhookconfigurations, mutatingwebhookconfigurations]
  resourceNames: [gpu-control-plane-webhook]
  verbs: [get]
# Whether pools are guarded, and by an index that says what the pools say.
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingadmissionpolicies, validatingadmissionpolicybindings]
  verbs: [list]
- apiGroups: [gpu.deckhouse.io]
  resources: [gpupools]
  verbs: [list]
# Which nodes have to have an agent.
- apiGroups: [""]
  resources: [nodes]
  verbs: [list]
- apiGroups: [gpu.deckhouse.io]
  resources: [gpunodestates]
  verbs: [list]
# Why none is created there.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [list]
{{- end }}

{{- define "gpu-control-plane.testRules" }}
# Whether our programs run.
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
- apiGroups: [apps]
  resources: [deployments, daemonsets]
  verbs: [list]
# Whether a controller leads.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [list]
# Whether pods stand behind the webhook's Service, and answer what the API server passes on to them.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list]
- apiGroups: [""]
  resources: [services/proxy]
  resourceNames: ["https:gpu-control-plane-webhook:webhook"]
  verbs: [create]
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [gpu-pool-access]
  verbs: [get]
{{- end }}

{{- define "gpu-control-plane.undoRuntimeClusterRules" }}
# On which nodes agents have written something.
- apiGroups: [gpu.deckhouse.io]
  resources: [gpunodestates]
  verbs: [list]
# Which of them are there.
- apiGroups: [""]
  resources: [nodes]
  verbs: [list]
{{- end }}

{{- define "gpu-control-plane.undoRuntimeRules" }}
# It waits until the agents have ended, and runs a pod on each of these nodes. Whoever may do that is root there: the
# right goes with the job.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, create, delete]
{{- end }}
