{{/* 16 bytes in base64, as Kafka's ids are: the first digits of a hash, so that two installations have two ids. */}}
{{- define "broker.clusterId" -}}
{{- $hash := printf "%s/%s" .Release.Namespace .Release.Name | sha256sum | trunc 16 }}
{{- .Values.brokers.clusterId | default ($hash | b64enc | trimSuffix "==" | replace "+" "-" | replace "/" "_") }}
{{- end }}

{{/* A broker that is a controller as well. CLIENTS binds where only the sidecar of its pod reaches it, and advertises the
pod's name and the sidecar's port. */}}
{{- define "broker.container" -}}
- name: broker
  image: {{ .Values.brokers.image | quote }}
  env:
    - name: POD_NAME
      valueFrom:
        fieldRef:
          fieldPath: metadata.name
    - name: KAFKA_NODE_ID
      valueFrom:
        fieldRef:
          fieldPath: metadata.labels['apps.kubernetes.io/pod-index']
    - {name: CLUSTER_ID, value: {{ include "broker.clusterId" . | quote }}}
    - {name: KAFKA_HEAP_OPTS, value: {{ .Values.brokers.heap | quote }}}
    - {name: KAFKA_PROCESS_ROLES, value: "broker,controller"}
    {{- $voters := list }}
    {{- range $i := until (int .Values.brokers.replicas) }}
    {{- $voters = append $voters (printf "%d@%s-%d.%s:9093" $i $.Release.Name $i (include "sidecar.pods" $)) }}
    {{- end }}
    - {name: KAFKA_CONTROLLER_QUORUM_VOTERS, value: {{ join "," $voters | quote }}}
    - {name: KAFKA_CONTROLLER_LISTENER_NAMES, value: CONTROLLER}
    - {name: KAFKA_LISTENERS, value: "CLIENTS://127.0.0.1:19092,INTERNAL://:9094,CONTROLLER://:9093"}
    - name: KAFKA_ADVERTISED_LISTENERS
      value: CLIENTS://$(POD_NAME).{{ include "sidecar.pods" . }}:{{ .Values.sidecar.port }},INTERNAL://$(POD_NAME).{{ include "sidecar.pods" . }}:9094
    - {name: KAFKA_LISTENER_SECURITY_PROTOCOL_MAP, value: "CLIENTS:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"}
    - {name: KAFKA_INTER_BROKER_LISTENER_NAME, value: INTERNAL}
    - {name: KAFKA_LOG_DIRS, value: /var/lib/kafka/data/log}
    {{- $replicas := min 3 (int .Values.brokers.replicas) }}
    {{- $least := min 2 $replicas }}
    {{- $defaults := dict
      "KAFKA_DEFAULT_REPLICATION_FACTOR" $replicas
      "KAFKA_MIN_INSYNC_REPLICAS" $least
      "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR" $replicas
      "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR" $least
      "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR" $replicas
      "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR" $least
      "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR" $replicas }}
    {{- range $name, $value := merge (deepCopy .Values.brokers.config) $defaults }}
    - {name: {{ $name }}, value: {{ $value | quote }}}
    {{- end }}
  ports:
    - {name: internal, containerPort: 9094}
    - {name: controller, containerPort: 9093}
  startupProbe:
    tcpSocket: {port: internal}
    periodSeconds: 2
    failureThreshold: {{ .Values.brokers.startupFailureThreshold }}
  readinessProbe:
    tcpSocket: {port: internal}
    periodSeconds: 5
  livenessProbe:
    tcpSocket: {port: internal}
    periodSeconds: 10
    failureThreshold: 6
  resources:
    {{- toYaml .Values.brokers.resources | nindent 4 }}
  securityContext:
    runAsUser: 1000
    runAsGroup: 1000
    {{- include "sidecar.locked" . | nindent 4 }}
  volumeMounts:
    - {name: data, mountPath: /var/lib/kafka/data}
    # The image writes its properties and a log of the garbage collector when it starts.
    - {name: config, mountPath: /opt/kafka/config}
    - {name: logs, mountPath: /opt/kafka/logs}
    - {name: tmp, mountPath: /tmp}
{{- end }}
