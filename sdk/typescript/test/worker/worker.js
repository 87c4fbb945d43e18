// The adapter in the runtime of Workers: everything it does, in answer to one request.
import { createBlobStore, createCheckpointStore } from './adapter/index.js'

const hex = (bytes) => [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, '0')).join('')

export default {
  async fetch(_, env) {
    try {
      return Response.json(await walk(env))
    } catch (error) {
      return Response.json({ error: `${error.name} ${error.code}: ${error.message}\n${error.stack}` })
    }
  },
}

async function walk({ URL: url, TOKEN: token, DEAD: dead }) {
  const options = { url, token: async () => token, messages: null }
  const checkpoints = createCheckpointStore(options)
  const blobs = createBlobStore({ ...options, threadId: 'worker' })
  const bytes = new TextEncoder().encode('written by a Worker')
  const blobKey = `sandbox-files/sha256/${hex(await crypto.subtle.digest('SHA-256', bytes))}`
  const writer = await checkpoints.acquireWriter('worker')
  await writer.renew()
  await blobs.put(blobKey, bytes)
  const checkpoint = {
    id: 'w1',
    threadId: 'worker',
    parentCheckpointId: null,
    createdAt: 1,
    reason: 'automatic',
    files: [{ path: 'f', kind: 'file', blobKey, size: bytes.length }],
    conversation: [],
    artifacts: [],
  }
  await checkpoints.append({ checkpoint, expectedHeadId: null, writer })
  const refused = await checkpoints.append({ checkpoint, expectedHeadId: 'w1', writer }).catch(({ name, code }) => ({ name, code }))
  const { size } = await blobs.head(blobKey)
  const text = await (await blobs.get(blobKey)).text()
  const part = await (await blobs.get(blobKey, { range: { offset: 13, length: 6 } })).text()
  const destination = await checkpoints.acquireWriter('copy')
  const { checkpoint: fork } = await checkpoints.forkFromCheckpoint({
    sourceThreadId: 'worker',
    sourceCheckpointId: 'w1',
    destinationThreadId: 'copy',
    destinationCheckpointId: 'w2',
    createdAt: 2,
    writer: destination,
  })
  const head = await checkpoints.getHead('worker')
  const list = (await checkpoints.list('worker')).map(({ id }) => id)
  const references = (await checkpoints.listBlobReferences()).map((reference) => reference.references)
  await checkpoints.deleteHead({ threadId: 'worker', checkpointId: 'w1', writer })
  await writer.release()
  const gone = await checkpoints.get('w1')
  const unreachable = await createCheckpointStore({ ...options, url: dead, retries: 1 }).getHead('a').catch(({ code }) => code)
  const late = await createCheckpointStore({ ...options, timeoutMs: 10, retries: 0, fetch: (_, { signal }) => new Promise((_, no) => signal.addEventListener('abort', () => no(signal.reason))) })
    .getHead('a')
    .catch(({ code }) => code)
  return { refused, size, text, part, fork: fork.reason, head, list, references, gone, unreachable, late }
}
