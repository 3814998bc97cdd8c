{{/*
Who serves what on a node. The agent, a DaemonSet of bootstrap and a ClusterPolicy can do the same; two at once would
count metrics twice or overwrite each other, so values that ask for two are refused. What the values do not show, such
as a ClusterPolicy that somebody else made, the bootstrap controller reports as the condition Degraded.
*/}}

{{/* Whether a section of the ClusterPolicy in these values is on, as «true» or nothing. Called with (list . "gfd"). */}}
{{- define "gpu-control-plane.policyServes" -}}
{{- $policy := (index . 0).Values.clusterPolicy -}}
{{- $section := get ($policy.spec | default dict) (index . 1) | default dict -}}
{{- if and $policy.create (ne (get $section "enabled" | toString) "false") }}true{{ end }}
{{- end }}

{{/* Whether the agent does its part, as «true» or nothing: `auto` is yes, unless somebody else named in the values does
it. Called with (list . "labels"), "exporter" or "validator". */}}
{{- define "gpu-control-plane.agentServes" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $wish := get $root.Values.agent $part -}}
{{- if kindIs "map" $wish }}{{ $wish = $wish.enabled }}{{ end -}}
{{- $wish = toString $wish -}}
{{- $others := list -}}
{{- if eq $part "labels" -}}
{{- $others = list $root.Values.bootstrap.gfd.enabled (include "gpu-control-plane.policyServes" (list $root "gfd")) -}}
{{- else if eq $part "exporter" -}}
{{- $others = list $root.Values.bootstrap.dcgmExporter.enabled (include "gpu-control-plane.policyServes" (list $root "dcgmExporter")) -}}
{{- else -}}
{{- $others = list $root.Values.bootstrap.validator.enabled $root.Values.clusterPolicy.create -}}
{{- end -}}
{{- if or (eq $wish "true") (and (eq $wish "auto") (empty (compact $others))) }}true{{ end }}
{{- end }}

{{/* Refuses values by which two programs would do the same. */}}
{{- define "gpu-control-plane.oneSourceEach" -}}
{{- $values := .Values -}}
{{- $functions := list
  (dict "what" "label Nodes with features of their cards" "sources" (list
    (list (eq (toString $values.agent.labels) "true") "agent.labels")
    (list $values.bootstrap.gfd.enabled "bootstrap.gfd.enabled")
    (list (include "gpu-control-plane.policyServes" (list . "gfd")) "clusterPolicy.spec.gfd.enabled (on unless it is false)")))
  (dict "what" "export metrics of the cards" "sources" (list
    (list (eq (toString $values.agent.exporter.enabled) "true") "agent.exporter.enabled")
    (list $values.bootstrap.dcgmExporter.enabled "bootstrap.dcgmExporter.enabled")
    (list (include "gpu-control-plane.policyServes" (list . "dcgmExporter")) "clusterPolicy.spec.dcgmExporter.enabled (on unless it is false)")))
  (dict "what" "run DCGM's host engine" "sources" (list
    (list $values.bootstrap.dcgm.enabled "bootstrap.dcgm.enabled")
    (list (include "gpu-control-plane.policyServes" (list . "dcgm")) "clusterPolicy.spec.dcgm.enabled (on unless it is false)")))
  (dict "what" "validate nodes" "sources" (list
    (list (eq (toString $values.agent.validator.enabled) "true") "agent.validator.enabled")
    (list $values.bootstrap.validator.enabled "bootstrap.validator.enabled")
    (list $values.clusterPolicy.create "clusterPolicy.create (its validator is always on)")))
-}}
{{- range $functions -}}
{{- $on := list -}}
{{- range .sources }}{{ if first . }}{{ $on = append $on (last .) }}{{ end }}{{ end -}}
{{- if gt (len $on) 1 -}}
{{- fail (printf "Only one program may %s, and the values ask for %d: %s. Switch off all but one." .what (len $on) (join ", " $on)) -}}
{{- end -}}
{{- end -}}
{{- end }}
