{{- define "weir.selector" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
# Empty where there is never more than one dispatcher, but for the time of an upgrade.
{{- define "weir.several" -}}
{{- if or (gt (int .Values.replicas) 1) .Values.replicasSecret.name -}}
yes
{{- end -}}
{{- end }}
# What is written beside the values: what several are told of each other, and where certificates are.
{{- define "weir.own" -}}
{{- if include "weir.several" . -}}
replicas:
  listen: 0.0.0.0:8082
  others: ["{{ .Release.Name }}-replicas:8082"]
  {{- if .Values.replicasSecret.name }}
  secret_env: WEIR_REPLICAS_SECRET
  {{- end }}
{{ end -}}
{{- if .Values.tls.secret -}}
tls: { certificate: /etc/weir/tls/tls.crt, key: /etc/weir/tls/tls.key }
{{ end -}}
{{- if .Values.tls.adminSecret -}}
admin: { tls: { certificate: /etc/weir/admin-tls/tls.crt, key: /etc/weir/admin-tls/tls.key } }
{{ end -}}
{{- end }}
# What the values say goes before.
{{- define "weir.config" -}}
{{ mergeOverwrite (include "weir.own" . | fromYaml) .Values.config | toYaml }}
{{- end }}
{{- define "weir.env" -}}
{{- if include "weir.several" . -}}
{{- if .Values.replicasSecret.name -}}
- name: WEIR_REPLICAS_SECRET
  valueFrom: { secretKeyRef: { name: {{ .Values.replicasSecret.name }}, key: {{ .Values.replicasSecret.key }} } }
{{ end -}}
{{- end -}}
{{- if .Values.env -}}
{{ toYaml .Values.env }}
{{- end -}}
{{- end }}
# How probes ask the admin side.
{{- define "weir.probed" -}}
{{- if .Values.tls.adminSecret -}}
, scheme: HTTPS
{{- end -}}
{{- end }}
