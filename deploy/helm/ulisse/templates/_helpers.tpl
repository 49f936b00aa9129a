{{- define "ulisse.labels" -}}
app.kubernetes.io/name: ulisse
app.kubernetes.io/part-of: ulisse
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "ulisse.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "ulisse.selector" -}}
{app.kubernetes.io/name: ulisse, app.kubernetes.io/component: {{ . }}}
{{- end }}

{{/* What all pods have in common, and no pod of ours may lack. */}}
{{- define "ulisse.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "ulisse.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities: {drop: [ALL]}
{{- end }}

{{- define "ulisse.tlsEnv" -}}
- {name: ULISSE_TLS_CA, value: /etc/ulisse/tls/ca.crt}
- {name: ULISSE_TLS_CERT, value: /etc/ulisse/tls/tls.crt}
- {name: ULISSE_TLS_KEY, value: /etc/ulisse/tls/tls.key}
{{- include "ulisse.revokedEnv" . }}
{{- end }}

{{/* The list of revoked certificates. */}}
{{- define "ulisse.revokedEnv" -}}
{{- if .Values.tls.revokedConfigMap }}
- {name: ULISSE_TLS_CRL, value: /etc/ulisse/revoked/ca.crl}
{{- end }}
{{- end }}

{{- define "ulisse.revokedMount" -}}
{{- if .Values.tls.revokedConfigMap }}
- {name: revoked, mountPath: /etc/ulisse/revoked, readOnly: true}
{{- end }}
{{- end }}

{{- define "ulisse.revokedVolume" -}}
{{- with .Values.tls.revokedConfigMap }}
- {name: revoked, configMap: {name: {{ . }}}}
{{- end }}
{{- end }}

{{/* Addresses of the coordinators, where workers look for the cluster. */}}
{{- define "ulisse.coordinators" -}}
{{- $names := list -}}
{{- range until (int .Values.coordinators.replicas) -}}
{{- $names = append $names (printf "ulisse-coordinator-%d.ulisse-coordinators:7000" .) -}}
{{- end -}}
{{ join "," $names }}
{{- end }}

{{- define "ulisse.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}
