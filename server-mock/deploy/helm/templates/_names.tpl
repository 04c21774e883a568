{{- define "pubsub.labels" -}}
app.kubernetes.io/name: hanzo-pubsub
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
