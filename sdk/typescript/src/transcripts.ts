import type { Checkpoint, Message } from './checkpoint.js'
import type { TranscriptStore } from './checkpoints.js'
import { Connection, json, type ConnectionOptions } from './connection.js'

/** How transcripts of forks are found. */
export interface ForkedTranscriptsOptions extends ConnectionOptions {
  /** Where the application keeps the transcripts of its threads. */
  messages: TranscriptStore
}

/**
 * The transcripts of the application, where a fork has one from the very request that
 * made it: as long as the application has none for a thread that began as a fork, it is
 * the conversation of the fork's first checkpoint, and is written on the way. Give the
 * result to `createCheckpointStore` and to your persistence.
 */
export function createForkedTranscripts(options: ForkedTranscriptsOptions): TranscriptStore {
  const cairn = new Connection(options)
  const { messages } = options
  return {
    async loadThread(threadId) {
      const kept = await messages.loadThread(threadId)
      if (kept.length > 0) return kept
      const forked = await conversationOfFork(cairn, threadId)
      if (forked.length > 0) await messages.saveThread(threadId, structuredClone(forked))
      return forked
    },
    saveThread: (threadId, transcript) => messages.saveThread(threadId, transcript),
  }
}

/** What a thread began with when it is a fork; nothing when it is none. */
async function conversationOfFork(cairn: Connection, threadId: string): Promise<Message[]> {
  const { checkpoints } = await cairn.send<{ checkpoints: Array<{ manifest?: Checkpoint }> }>({
    method: 'GET',
    path: ['threads', threadId, 'checkpoints'],
    query: { order: 'asc', limit: '1', manifests: 'true' },
    read: json,
  })
  const first = checkpoints[0]?.manifest
  return first?.reason === 'fork-root' ? [...first.conversation] : []
}
