{{- define "sidecar.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The labels that pods are found by: they must not change from one version to the next. */}}
{{- define "sidecar.selector" -}}
{{- if eq .Values.mode "existing" -}}
{{ toYaml .Values.existing.podLabels }}
{{- else -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- end }}

{{/* The headless service, whose names lead to single pods: what brokers advertise. */}}
{{- define "sidecar.pods" -}}
{{ .Release.Name }}-pods.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{- define "sidecar.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* INTERNAL of all brokers. */}}
{{- define "sidecar.bootstrap" -}}
{{- if eq .Values.mode "cluster" -}}
{{- $all := list -}}
{{- range $i := until (int .Values.brokers.replicas) -}}
{{- $all = append $all (printf "%s-%d.%s:9094" $.Release.Name $i (include "sidecar.pods" $)) -}}
{{- end -}}
{{ join "," $all }}
{{- else -}}
{{ .Values.beside.bootstrap | default "KAFKA-0:9094,KAFKA-1:9094,KAFKA-2:9094" }}
{{- end }}
{{- end }}

{{- define "sidecar.broker" -}}
{{- if eq .Values.mode "beside" }}{{ .Values.beside.broker }}{{ else }}127.0.0.1:19092{{ end }}
{{- end }}

{{/* Nothing may become root, nothing may be written to but volumes. */}}
{{- define "sidecar.locked" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "sidecar.probeScheme" -}}
{{- if .Values.sidecar.adminAccess.tlsSecret }}, scheme: HTTPS{{ end }}
{{- end }}

{{/* The container. `native`: it starts before the broker in its pod and stops after it. */}}
{{- define "sidecar.container" -}}
- name: sidecar
  image: {{ include "sidecar.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  {{- if ne .Values.mode "beside" }}
  # A native sidecar container (Kubernetes 1.29): it starts before the broker and stops after it. So while a pod ends, the
  # broker moves its leaders away first, and clients reach it until it is gone. A preStop hook would turn that round.
  restartPolicy: Always
  {{- end }}
  args: [run, --config, /etc/kafka-group-sidecar/sidecar.yaml]
  env:
    # The number in the pod's name is the broker's node id.
    - name: NODE_ID
      valueFrom:
        fieldRef:
          fieldPath: metadata.labels['apps.kubernetes.io/pod-index']
    - name: SIDECAR_NODE_ID
      value: $(NODE_ID)
    - name: SIDECAR_LISTEN
      value: 0.0.0.0:{{ .Values.sidecar.port }}
    - name: SIDECAR_BROKER
      value: {{ include "sidecar.broker" . | quote }}
    - name: SIDECAR_BOOTSTRAP
      value: {{ include "sidecar.bootstrap" . | quote }}
    - name: SIDECAR_ADMIN
      value: 0.0.0.0:{{ .Values.sidecar.adminPort }}
    # Brokers may take their time, and a restart of the sidecar would not help: wait for ever.
    - name: SIDECAR_BROKER_WAIT_MS
      value: "0"
    {{- with .Values.sidecar.adminAccess }}
    {{- if .tokenSecret }}
    - {name: SIDECAR_ADMIN_ACCESS__TOKEN_FILE, value: /run/sidecar-admin/token/tokens}
    {{- end }}
    {{- if .tlsSecret }}
    - {name: SIDECAR_ADMIN_ACCESS__TLS_CERTIFICATE, value: /run/sidecar-admin/tls/tls.crt}
    - {name: SIDECAR_ADMIN_ACCESS__TLS_KEY, value: /run/sidecar-admin/tls/tls.key}
    {{- end }}
    {{- if .metricsOpen }}
    - {name: SIDECAR_ADMIN_ACCESS__METRICS_OPEN, value: "true"}
    {{- end }}
    {{- if .hosts }}
    - {name: SIDECAR_ADMIN_ACCESS__HOSTS, value: {{ toJson .hosts | quote }}}
    {{- end }}
    {{- end }}
    {{- with .Values.sidecar.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - {name: clients, containerPort: {{ .Values.sidecar.port }}}
    - {name: admin, containerPort: {{ .Values.sidecar.adminPort }}}
    - {name: peers, containerPort: {{ .Values.sidecar.settings.ownership.peer_port }}}
  # /livez: its loop turns. No broker is needed for that, so the broker's container may wait for it. Probes need no token,
  # and the kubelet does not look at the certificate.
  startupProbe:
    httpGet: {path: /livez, port: admin{{ include "sidecar.probeScheme" . }}}
    periodSeconds: 1
    failureThreshold: 60
  livenessProbe:
    httpGet: {path: /livez, port: admin{{ include "sidecar.probeScheme" . }}}
    periodSeconds: 5
    timeoutSeconds: 3
    failureThreshold: 6
  # /readyz: it serves what it was assigned. A rolling restart waits for it before it goes on to the next pod.
  readinessProbe:
    httpGet: {path: /readyz, port: admin{{ include "sidecar.probeScheme" . }}}
    periodSeconds: 2
    timeoutSeconds: 3
    failureThreshold: 3
  resources:
    {{- toYaml .Values.sidecar.resources | nindent 4 }}
  securityContext:
    runAsUser: 10001
    {{- include "sidecar.locked" . | nindent 4 }}
  volumeMounts:
    - {name: sidecar-settings, mountPath: /etc/kafka-group-sidecar, readOnly: true}
    {{- if .Values.sidecar.adminAccess.tokenSecret }}
    - {name: sidecar-admin-token, mountPath: /run/sidecar-admin/token, readOnly: true}
    {{- end }}
    {{- if .Values.sidecar.adminAccess.tlsSecret }}
    - {name: sidecar-admin-tls, mountPath: /run/sidecar-admin/tls, readOnly: true}
    {{- end }}
    {{- with .Values.sidecar.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- define "sidecar.volumes" -}}
- name: sidecar-settings
  configMap:
    name: {{ .Release.Name }}-settings
{{- with .Values.sidecar.adminAccess.tokenSecret }}
- name: sidecar-admin-token
  secret:
    secretName: {{ . | quote }}
    items:
      - {key: {{ $.Values.sidecar.adminAccess.tokenKey | quote }}, path: tokens}
{{- end }}
{{- with .Values.sidecar.adminAccess.tlsSecret }}
- name: sidecar-admin-tls
  secret:
    secretName: {{ . | quote }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "sidecar.podSpec" -}}
serviceAccountName: {{ .Release.Name }}
# Nothing in the pod asks Kubernetes anything.
automountServiceAccountToken: false
# Else a Service named kafka or sidecar would become KAFKA_... and SIDECAR_... variables: the broker's image takes such for
# properties, and the sidecar refuses settings that it does not know.
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  fsGroup: 1000
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
# One on each node as far as possible.
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "sidecar.selector" . | nindent 8 }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
