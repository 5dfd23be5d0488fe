{{/* The agent's affinity. Terms of a required node affinity are alternatives, so each keeps the agent off own nodes. */}}
{{- define "tenon.affinity" -}}
{{- $affinity := deepCopy (.Values.affinity | default dict) -}}
{{- if not .Values.runOnOwnNodes -}}
  {{- $off := dict "key" "karpenter.sh/nodepool" "operator" "DoesNotExist" -}}
  {{- $node := $affinity.nodeAffinity | default dict -}}
  {{- $required := $node.requiredDuringSchedulingIgnoredDuringExecution | default dict -}}
  {{- $terms := list -}}
  {{- range $required.nodeSelectorTerms | default (list dict) -}}
    {{- $terms = append $terms (set . "matchExpressions" (append (.matchExpressions | default list) $off)) -}}
  {{- end -}}
  {{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
  {{- $_ := set $affinity "nodeAffinity" $node -}}
{{- end -}}
{{- with $affinity }}{{ toYaml . }}{{ end -}}
{{- end }}

{{- define "tenon.topologySpreadConstraints" -}}
{{- $agents := dict "matchLabels" (dict "app.kubernetes.io/name" "tenon-agent") -}}
{{- $all := list -}}
{{- range .Values.topologySpreadConstraints -}}
  {{- $selector := .labelSelector | default $agents -}}
  {{- $all = append $all (set (deepCopy .) "labelSelector" $selector) -}}
{{- end -}}
{{- with $all }}{{ toYaml . }}{{ end -}}
{{- end }}
