{{/*
Where our programs for GPU nodes run. A node is managed if it has a card and nobody took it out by its label. This is
read off labels alone, never off a status, and no node is named: one that joins rolls nothing on the others.
*/}}

{{/* Nodes that have a card, as Node Feature Discovery or our own discovery says, and are managed. */}}
{{- define "gpuControlPlane.managedNodeAffinity" -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      {{- range list "feature.node.kubernetes.io/pci-10de.present" "feature.node.kubernetes.io/pci-0302_10de.present" "feature.node.kubernetes.io/pci-0300_10de.present" "gpu.deckhouse.io/gpu.present" }}
      - matchExpressions:
          - {key: {{ . }}, operator: In, values: ["true"]}
          {{- if $.Values.managedNodes.enabledByDefault }}
          - {key: {{ $.Values.managedNodes.labelKey }}, operator: NotIn, values: ["false"]}
          {{- else }}
          - {key: {{ $.Values.managedNodes.labelKey }}, operator: In, values: ["true"]}
          {{- end }}
      {{- end }}
{{- end }}

{{/* What else every such node has. */}}
{{- define "gpuControlPlane.managedNodeSelector" -}}
kubernetes.io/os: linux
{{- end }}
