// A member on kafkajs; it commits what it has consumed after each batch.
const { Kafka, logLevel, PartitionAssigners } = require('kafkajs')
const { version } = require('kafkajs/package.json')

const o = {}
for (let i = 2; i + 1 < process.argv.length; i += 2) o[process.argv[i].slice(2)] = process.argv[i + 1]

const emit = (e, fields = {}) => process.stdout.write(JSON.stringify({ t: Date.now(), e, ...fields }) + '\n')
const logCreator = () => ({ namespace, level, log }) => {
  process.stderr.write(`${level} ${namespace} ${JSON.stringify(log)}\n`)
  if (level <= logLevel.ERROR) emit('error', { text: `${log.message} ${log.error || ''}` })
}

const kafka = new Kafka({
  clientId: o.name,
  brokers: o.bootstrap.split(','),
  logLevel: logLevel.WARN,
  logCreator,
})
const consumer = kafka.consumer({
  groupId: o.group,
  sessionTimeout: Number(o['session-ms']),
  heartbeatInterval: Number(o['heartbeat-ms']),
  maxWaitTimeInMs: 300,
  partitionAssigners: [PartitionAssigners.roundRobin],
})

let held = []
const give = (event, partitions) => {
  held = event === 'assigned' ? partitions : []
  emit(event, { partitions })
}

consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  if (held.length) give('revoked', held)
  give('assigned', payload.memberAssignment[o.topic] || [])
})
consumer.on(consumer.events.REBALANCING, () => give('revoked', held))
consumer.on(consumer.events.CRASH, ({ payload }) => {
  emit('error', { text: `crash: ${payload.error}` })
  give('lost', held)
})

const eachBatch = async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
  let next = null
  for (const m of batch.messages) {
    if (!isRunning() || isStale()) break
    emit('consumed', { partition: batch.partition, offset: Number(m.offset) })
    resolveOffset(m.offset)
    next = String(Number(m.offset) + 1)
  }
  if (next !== null) {
    await consumer.commitOffsets([{ topic: o.topic, partition: batch.partition, offset: next }])
    emit('committed')
  }
  await heartbeat()
}

const main = async () => {
  emit('started', { version: `kafkajs ${version}` })
  await consumer.connect()
  await consumer.subscribe({ topics: [o.topic], fromBeginning: true })
  await consumer.run({ autoCommit: false, eachBatch })
}

process.once('SIGTERM', async () => {
  await consumer.stop()
  emit('closing')
  await consumer.disconnect()
  emit('closed')
  process.exit(0)
})
main().catch(e => emit('error', { text: String(e) }))
