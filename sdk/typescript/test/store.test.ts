// The rules of TanStack's checkpoint store, through the adapter.
import { createCheckpointStore, createForkedTranscripts, type Message } from '@cairnstate/tanstack-ai'
import { forkConformance, storeConformance } from './conformance.js'
import { freshOrg } from './world.js'

/** Transcripts in memory. */
function transcripts() {
  const threads = new Map<string, Message[]>()
  return {
    loadThread: async (thread: string) => structuredClone(threads.get(thread) ?? []),
    saveThread: async (thread: string, messages: Message[]) => void threads.set(thread, structuredClone(messages)),
  }
}

storeConformance('Cairn, with blobs of the application', async (clock) => createCheckpointStore({ ...(await freshOrg(clock)), externalBlobs: true }))

forkConformance('Cairn', async () => {
  const messages = transcripts()
  const org = await freshOrg()
  return { messages, store: createCheckpointStore({ ...org, externalBlobs: true, messages }) }
})

forkConformance('Cairn, with transcripts from the forks', async () => {
  const org = await freshOrg()
  const messages = createForkedTranscripts({ ...org, messages: transcripts() })
  return { messages, store: createCheckpointStore({ ...org, externalBlobs: true, messages }) }
})
