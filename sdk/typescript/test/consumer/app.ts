// An application that checks the declarations of its libraries and knows no DOM.
import { createBlobStore, createCheckpointStore, createForkedTranscripts, CairnError, type Checkpoint } from '@cairnstate/tanstack-ai'

const cairn = { url: new URL('https://cairn.example.com'), token: async () => 'token', fetch, signal: AbortSignal.timeout(60_000) }
const blobs = createBlobStore({ ...cairn, threadId: 'a' })
const messages = createForkedTranscripts({ ...cairn, messages: { loadThread: async () => [], saveThread: async () => undefined } })
const checkpoints = createCheckpointStore({ ...cairn, messages, externalBlobs: true })

export async function newest(threadId: string): Promise<Checkpoint | null> {
  try {
    const head = await checkpoints.getHead(threadId)
    const found = head === null ? null : await checkpoints.get(head)
    for (const entry of found?.files ?? []) {
      if (entry.kind === 'file') await (await blobs.get(entry.blobKey, { range: { offset: 0, length: 1 } }))?.text()
    }
    return found
  } catch (error) {
    if (error instanceof CairnError && error.code === 'unreachable') return null
    throw error
  }
}
