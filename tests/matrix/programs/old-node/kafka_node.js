// A member on kafka-node, whose last version is of 2019; it commits what it has consumed, a few times a second.
const { ConsumerGroup } = require('kafka-node')
const { version } = require('kafka-node/package.json')

const o = {}
for (let i = 2; i + 1 < process.argv.length; i += 2) o[process.argv[i].slice(2)] = process.argv[i + 1]

const emit = (e, fields = {}) => process.stdout.write(JSON.stringify({ t: Date.now(), e, ...fields }) + '\n')

emit('started', { version: `kafka-node ${version}` })
const consumer = new ConsumerGroup({
  kafkaHost: o.bootstrap,
  id: o.name,
  groupId: o.group,
  sessionTimeout: Number(o['session-ms']),
  heartbeatInterval: Number(o['heartbeat-ms']),
  fromOffset: 'earliest',
  autoCommit: false,
}, [o.topic])

// By itself it commits whole batches only, and so not the records that it has given out of the last one.
const ends = {}
const commit = then => {
  const commits = Object.entries(ends).map(([partition, offset]) => ({ topic: o.topic, partition: Number(partition), offset, metadata: '' }))
  if (!commits.length) return then()
  for (const c of commits) delete ends[c.partition]
  consumer.sendOffsetCommitRequest(commits, e => {
    emit(e ? 'error' : 'committed', e ? { text: String(e) } : {})
    then()
  })
}
setInterval(() => commit(() => {}), 300)

let held = []
let closing = false
const give = (event, partitions) => {
  held = event === 'assigned' ? partitions : []
  emit(event, { partitions })
}
consumer.on('rebalancing', () => held.length && give('revoked', held))
consumer.on('rebalanced', () => give('assigned', consumer.topicPayloads.map(p => p.partition)))
consumer.on('message', m => {
  if (closing) return
  ends[m.partition] = m.offset + 1
  emit('consumed', { partition: m.partition, offset: m.offset })
})
consumer.on('error', e => emit('error', { text: String(e) }))

process.once('SIGTERM', () => {
  emit('closing')
  closing = true
  commit(() => consumer.close(false, e => {
    if (e) emit('error', { text: String(e) })
    emit('closed')
    process.exit(0)
  }))
})
