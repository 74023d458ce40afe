{{/* The name of the chart. */}}
{{- define "tidegate.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The beginning of all names: 52 characters leave room for their ends. */}}
{{- define "tidegate.fullname" -}}
{{- $name := include "tidegate.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Labels by which Services and the like find the pods of the proxy. They can't change in an upgrade. */}}
{{- define "tidegate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "tidegate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: proxy
{{- end }}

{{/* Labels of everything but the component. */}}
{{- define "tidegate.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "tidegate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "tidegate.labels" -}}
{{ include "tidegate.commonLabels" . }}
app.kubernetes.io/component: proxy
{{- end }}

{{- define "tidegate.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{- define "tidegate.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "tidegate.fullname" .) }}
{{- else }}
{{- .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{/* The Secret with the tokens of [admin]. */}}
{{- define "tidegate.adminSecret" -}}
{{- .Values.admin.existingSecret | default (printf "%s-admin" (include "tidegate.fullname" .)) }}
{{- end }}

{{/* The Secret with the URL of Redis; empty without Redis. */}}
{{- define "tidegate.redisSecret" -}}
{{- if .Values.redis.existingSecret }}
{{- .Values.redis.existingSecret }}
{{- else if .Values.redis.url }}
{{- printf "%s-redis" (include "tidegate.fullname" .) }}
{{- end }}
{{- end }}

{{- define "tidegate.redisSecretKey" -}}
{{- if .Values.redis.existingSecret }}{{ .Values.redis.existingSecretKey }}{{ else }}url{{ end }}
{{- end }}

{{/* The largest number of pods, for `instances` of [store]. */}}
{{- define "tidegate.instances" -}}
{{- ternary .Values.autoscaling.maxReplicas .Values.replicaCount .Values.autoscaling.enabled | int | max 1 }}
{{- end }}

{{/* The files of the configuration, for a ConfigMap. Without a listener on each port no pod would become ready. */}}
{{- define "tidegate.files" -}}
{{- $config := tpl .Values.config . }}
{{- range .Values.service.ports }}
{{- if not (regexMatch (printf ":%d[\"']" (int .targetPort)) $config) }}
{{- fail (printf "config: no listener has the port %d of service.ports: add [[listeners]] address = \"0.0.0.0:%d\"" (int .targetPort) (int .targetPort)) }}
{{- end }}
{{- end }}
{{- if not (regexMatch (printf ":%d[\"']" (int .Values.admin.port)) $config) }}
{{- fail (printf "config: [admin] does not listen on admin.port: add [admin] listen = \"0.0.0.0:%d\", token = \"${ADMIN_TOKEN}\" and read_token = \"${ADMIN_READ_TOKEN}\"" (int .Values.admin.port)) }}
{{- end }}
tidegate.toml: |
  {{- trim $config | nindent 2 }}
{{- range $name, $text := .Values.files }}
{{ $name }}: {{ $text | quote }}
{{- end }}
{{- end }}
