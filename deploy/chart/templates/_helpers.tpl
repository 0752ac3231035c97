{{/* Labels of every object: (list root component [model]) */}}
{{- define "windtunnel.labels" -}}
{{- $root := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: windtunnel
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ index . 1 }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{- end }}

{{/* Labels that select the pods of a workload: (list root name) */}}
{{- define "windtunnel.selector" -}}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
windtunnel/part: {{ index . 1 }}
{{- end }}

{{- define "windtunnel.tag" -}}
{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The image of a component: (list root image) */}}
{{- define "windtunnel.image" -}}
{{- $root := index . 0 -}}
image: {{ index . 1 | default (printf "%s:%s" $root.Values.image.repository (include "windtunnel.tag" $root)) }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
{{- end }}

{{/* What every container of windtunnel's own may do: nothing. */}}
{{- define "windtunnel.confined" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* What every pod has: (list root serviceAccount) */}}
{{- define "windtunnel.pod" -}}
{{- $root := index . 0 -}}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
{{ toYaml . }}
{{- end }}
{{- with index . 1 }}
serviceAccountName: {{ . }}
{{- else }}
automountServiceAccountToken: false
{{- end }}
{{- end }}

{{/* A pod whose containers are windtunnel's own, or real ones without root. */}}
{{- define "windtunnel.unprivileged" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Variables with the pod's name and address. */}}
{{- define "windtunnel.here" -}}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
{{- end }}

{{- define "windtunnel.budget" -}}
{{- $root := index . 0 -}}
{{- if and $root.Values.disruptionBudget.enabled (gt (int (index . 2)) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ index . 1 }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "windtunnel.labels" (list $root (index . 3)) | nindent 4 }}
spec:
  maxUnavailable: {{ $root.Values.disruptionBudget.maxUnavailable }}
  selector:
    matchLabels: {{- include "windtunnel.selector" (list $root (index . 1)) | nindent 6 }}
{{- end }}
{{- end }}

{{/* Fails where a part that others need is missing, or where versions differ. */}}
{{- define "windtunnel.check" -}}
{{- $v := .Values -}}
{{- $tag := include "windtunnel.tag" . -}}
{{- if and (regexMatch "^v[0-9]+\\.[0-9]+\\.[0-9]+$" $tag) (ne $tag .Chart.AppVersion) }}
{{- fail (printf "image.tag: found windtunnel %s; the chart is of %s: leave image.tag empty, or install the chart of %s" $tag .Chart.AppVersion $tag) }}
{{- end }}
{{- $families := dict "windtunnel" (list "the chart" $tag) -}}
{{- range $path := list "modelServer.image" "sidecar.image" "epp.image" "bodyBasedRouter.image" "kvCacheManager.image" "predictor.trainingImage" "predictor.predictionImage" "dynamo.image" }}
{{- $keys := splitList "." $path }}
{{- $image := index $v (first $keys) (last $keys) }}
{{- $reference := first (splitList "@" $image) }}
{{- $name := base $reference }}
{{- $version := last (splitList ":" $name) }}
{{- $family := "" }}
{{- if hasPrefix (printf "%s:" $v.image.repository) $image }}{{ $family = "windtunnel" }}
{{- else if hasPrefix "llm-d-router-" $name }}{{ $family = "llm-d-router" }}
{{- else if or (hasPrefix "llm-d-latency-" $name) (hasPrefix "latency-" $name) }}{{ $family = "llm-d-latency-predictor" }}
{{- else if contains "/ai-dynamo/" $reference }}{{ $family = "Dynamo" }}
{{- end }}
{{- if $family }}
{{- $first := get $families $family }}
{{- if not $first }}{{ $_ := set $families $family (list $path $version) }}
{{- else if ne (index $first 1) $version }}
{{- fail (printf "%s: found %s %s, and %s has %s; expected one version of all its parts" $path $family $version (index $first 0) (index $first 1)) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and (gt (len $v.models) 1) (not $v.bodyBasedRouter.enabled) }}
{{- fail (printf "models: found %d, and no body-based router that reads which one a request names; expected bodyBasedRouter.enabled: true" (len $v.models)) }}
{{- end }}
{{- if and (eq $v.gateway.className "windtunnel") $v.bodyBasedRouter.enabled }}
{{- fail "gateway.className: found windtunnel, which asks no body-based router; expected another class, or bodyBasedRouter.enabled: false" }}
{{- end }}
{{- range $key, $model := $v.models }}
{{- if and $v.epp.image (not $model.pickerConfig) (or $v.kvCacheManager.enabled (has $v.dynamo.placement (list "sidecar" "service"))) }}
{{- fail (printf "models.%s.pickerConfig: there is none; expected one without kv-cache-manager-scorer and dynamo-frontend-scorer, which %s does not have" $key $v.epp.image) }}
{{- end }}
{{- end }}
{{- if and (has $v.dynamo.placement (list "sidecar" "service")) (not $v.dynamo.image) }}
{{- fail (printf "dynamo.image: there is none; expected the image of Dynamo's frontend for placement %s; windtunnel's own router is placement plugin" $v.dynamo.placement) }}
{{- end }}
{{- if ne (empty $v.predictor.trainingImage) (empty $v.predictor.predictionImage) }}
{{- fail "predictor: found one of trainingImage and predictionImage; expected both or none" }}
{{- end }}
{{- end }}

{{/* The EndpointPickerConfig of a model: (list root key model) */}}
{{- define "windtunnel.pickerConfig" -}}
{{- $root := index . 0 }}{{ $key := index . 1 }}{{ $model := index . 2 -}}
{{- $v := $root.Values -}}
{{- $apart := gt (int (dig "prefill" "replicas" 0 $model)) 0 -}}
{{- $scorers := list (list "queue-scorer" 2) (list "kv-cache-utilization-scorer" 2) (list "prefix-cache-scorer" 3) -}}
{{- if $v.predictor.enabled }}{{ $scorers = list (list "latency-scorer" 1) }}{{ end -}}
{{- if eq $v.dynamo.placement "plugin" }}{{ $scorers = list (list "dynamo-router" 1) }}
{{- else if $v.dynamo.placement }}{{ $scorers = list (list "dynamo-frontend-scorer" 1) }}{{ end -}}
{{- if $v.kvCacheManager.enabled }}{{ $scorers = append $scorers (list "kv-cache-manager-scorer" 5) }}{{ end -}}
{{- if $model.adapters }}{{ $scorers = append $scorers (list "lora-affinity-scorer" 4) }}{{ end -}}
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
{{- range $scorers }}
- type: {{ first . }}
{{- if eq (first .) "kv-cache-manager-scorer" }}
  parameters: {endpoint: "http://{{ $root.Release.Name }}-kv-cache-manager.{{ $root.Release.Namespace }}.svc.cluster.local:8080"}
{{- else if eq (first .) "dynamo-frontend-scorer" }}
  parameters: {url: "http://{{ ternary "127.0.0.1" (printf "%s-%s-dynamo.%s.svc.cluster.local" $root.Release.Name $key $root.Release.Namespace) (eq $v.dynamo.placement "sidecar") }}:8100"}
{{- end }}
{{- end }}
{{- if $v.predictor.enabled }}
- {type: predicted-latency-producer, parameters: {streamingMode: true}}
{{- end }}
- type: max-score-picker
{{- if $apart }}
- type: prefill-filter
- type: decode-filter
- {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 16}}
- {type: disagg-profile-handler, parameters: {deciders: {prefill: prefix-based-pd-decider}}}
{{- end }}
schedulingProfiles:
{{- range $profile := ternary (list "prefill" "decode") (list "default") $apart }}
- name: {{ $profile }}
  plugins:
{{- if $apart }}
  - pluginRef: {{ $profile }}-filter
{{- end }}
{{- range $scorers }}
  - {pluginRef: {{ first . }}, weight: {{ last . }}}
{{- end }}
  - pluginRef: max-score-picker
{{- end }}
{{- end }}
