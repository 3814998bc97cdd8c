{{/* The part of the controller that looks after Ray. */}}

{{/* Its arguments. */}}
{{- define "gpu-control-plane.rayArguments" -}}
{{- $ray := .Values.ray -}}
{{- if not $ray.enabled }}
- --without=ray
{{- else }}
{{- if and $ray.singleNamespaceInstall (ne (len $ray.watchNamespace) 1) }}
{{- fail "ray.singleNamespaceInstall is for one namespace: name it in ray.watchNamespace. It cannot be that of the release, whose service accounts are our own programs'." }}
{{- end }}
{{- if has (include "gpu-control-plane.namespace" .) $ray.watchNamespace }}
{{- fail (printf "ray.watchNamespace has %s, where our own programs run: whatever a service account there writes is believed to be theirs. Ray needs another namespace." (include "gpu-control-plane.namespace" .)) }}
{{- end }}
{{- range $ray.watchNamespace }}
- --ray-watch-namespace={{ . }}
{{- end }}
{{- if $ray.singleNamespaceInstall }}
- --ray-single-namespace
{{- end }}
{{- range $ray.kuberayNamespaces }}
- --kuberay-namespace={{ . }}
{{- end }}
{{- with $ray.batchScheduler.name }}
- --ray-batch-scheduler={{ . }}
{{- end }}
{{- if not $ray.startTogether }}
- --no-ray-gang
{{- end }}
{{- if $ray.useKubernetesProxy }}
- --ray-use-kubernetes-proxy
{{- end }}
{{- if .Capabilities.APIVersions.Has "route.openshift.io/v1" }}
- --ray-routes
{{- end }}
{{- if include "gpu-control-plane.rayDefaults" . }}
- --ray-defaults=/etc/ray-defaults/defaults.yaml
{{- end }}
{{- end }}
{{- end }}

{{/* Its switches. */}}
{{- define "gpu-control-plane.rayEnvironment" -}}
{{- if .Values.ray.enabled }}
{{- range $name, $value := mustMergeOverwrite (dict "CLUSTER_DOMAIN" (include "gpu-control-plane.clusterDomain" . | trim)) .Values.ray.env }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
{{- end }}

{{/* What every pod of Ray has besides its template, as the file that the controller reads; nothing where it has nothing. */}}
{{- define "gpu-control-plane.rayDefaults" -}}
{{- if .Values.ray.enabled -}}
{{- $set := dict -}}
{{- range $name, $value := .Values.ray.configuration -}}
{{- if $value }}{{ $_ := set $set $name $value }}{{ end -}}
{{- end -}}
{{- if $set }}{{ toYaml $set }}{{ end -}}
{{- end -}}
{{- end }}

{{/* What the controller may do in namespaces with objects of Ray. Kubernetes lets nobody grant what he does not have, so it
holds what Ray's autoscaler is granted; where that is the only reason, it is said. */}}
{{- define "gpu-control-plane.rayRules" }}
# What people want; a RayJob or RayService makes RayClusters, a RayCronJob RayJobs. Finalizers and changes in place are
# patches. Ray's autoscaler is granted get and patch of RayClusters.
- apiGroups: [ray.io]
  resources: [rayclusters, rayjobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [ray.io]
  resources: [rayservices]
  verbs: [list, watch, patch]
- apiGroups: [ray.io]
  resources: [raycronjobs]
  verbs: [list, watch]
# What has become of it.
- apiGroups: [ray.io]
  resources: [rayclusters/status, rayjobs/status, rayservices/status, raycronjobs/status]
  verbs: [patch]
# What they make goes with them. Some clusters want this right of whoever names such an owner.
- apiGroups: [ray.io]
  resources: [rayclusters/finalizers, rayjobs/finalizers, rayservices/finalizers, raycronjobs/finalizers]
  verbs: [update]
# Heads and workers. They start together by a gate that a patch takes off; labels say whether they serve.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
# Only to be granted: Ray's autoscaler changes the size of a pod in place.
- apiGroups: [""]
  resources: [pods/resize]
  verbs: [patch]
# Services of heads and of Ray Serve, and accounts of autoscalers. They go when the spec asks for them no more.
- apiGroups: [""]
  resources: [services, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
# Volumes of the GCS: made once, and Kubernetes deletes them with their owner. One that is to be kept from now on is
# patched: it has no owner any more.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, create, patch]
# How many cards pods have that are given theirs by claims, in clusters that know this kind.
- apiGroups: [resource.k8s.io]
  resources: [resourceclaimtemplates]
  verbs: [list, watch]
# What these accounts may do.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch, delete]
# Tokens of clusters with authentication: made once, and shown to the dashboard. RBAC cannot say which Secrets these are:
# the controller watches those with the label of a RayCluster, and reads one that a spec names.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create]
# Jobs that submit a RayJob, and that clean up Redis.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
# Dashboards for people, and who may reach a cluster.
- apiGroups: [networking.k8s.io]
  resources: [ingresses, networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
# How many pods answer requests.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
{{- with .Values.ray.batchScheduler.name }}
{{- if eq . "volcano" }}
# Pods that Volcano is to schedule together.
- apiGroups: [scheduling.volcano.sh]
  resources: [podgroups]
  verbs: [get, list, watch, create, patch, delete]
{{- else if eq . "scheduler-plugins" }}
# Pods that the scheduler's plugins are to schedule together.
- apiGroups: [scheduling.x-k8s.io]
  resources: [podgroups]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
{{- end }}
# Traffic that moves in steps to the new cluster of a RayService, in clusters that know these kinds.
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways, httproutes]
  verbs: [get, list, watch, create, patch, delete]
# Certificates of clusters with TLS, in clusters that have cert-manager.
- apiGroups: [cert-manager.io]
  resources: [issuers, certificates]
  verbs: [get, create, patch]
{{- if .Capabilities.APIVersions.Has "route.openshift.io/v1" }}
# OpenShift's way to dashboards for people.
- apiGroups: [route.openshift.io]
  resources: [routes]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
{{- if .Values.ray.useKubernetesProxy }}
# Ray's dashboards, through the API server: questions, new jobs and their end, configurations of Ray Serve.
- apiGroups: [""]
  resources: [services/proxy]
  verbs: [get, create, update]
# Whether Ray Serve's proxy on a head takes requests.
- apiGroups: [""]
  resources: [pods/proxy]
  verbs: [get]
{{- end }}
{{- end }}

{{/* Whether KubeRay's operator is in charge: this is its lease. */}}
{{- define "gpu-control-plane.kuberayLeaseRule" }}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [ray-operator-leader]
  verbs: [list, watch]
{{- end }}
