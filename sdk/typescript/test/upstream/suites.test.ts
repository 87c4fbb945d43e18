// TanStack's own suites through the adapter: those of the installed package, or those
// of its sources, which are then in upstream/.
import type { Clock } from '../conformance.js'
import { createCheckpointStore, type CheckpointStore, type ForkableCheckpointStore, type Message, type TranscriptStore } from '@cairnstate/tanstack-ai'
import { freshOrg } from '../world.js'

interface Suites {
  runSandboxCheckpointStoreConformance: (name: string, make: (options?: { now?: () => number }) => Promise<CheckpointStore>) => void
  runSandboxCheckpointForkConformance: (
    name: string,
    make: () => Promise<{ persistence: { stores: { messages: TranscriptStore } }; checkpoints: ForkableCheckpointStore }>,
  ) => void
}

const modules =
  process.env.CAIRN_TANSTACK_SUITES === 'sources'
    ? ['checkpoint', 'checkpoint-fork'].map((name) => new URL(`../../upstream/sandbox/testkit/${name}-conformance.ts`, import.meta.url).pathname)
    : ['@tanstack/ai-sandbox/testkit']
const suites = Object.assign({}, ...(await Promise.all(modules.map((name) => import(name))))) as Suites

suites.runSandboxCheckpointStoreConformance('Cairn', async (options) => {
  const clock: Clock = {
    get now() {
      return options?.now?.() ?? Date.now()
    },
  }
  return createCheckpointStore({ ...(await freshOrg(clock)), externalBlobs: true })
})

suites.runSandboxCheckpointForkConformance('Cairn', async () => {
  const threads = new Map<string, Message[]>()
  const messages = {
    loadThread: async (thread: string) => structuredClone(threads.get(thread) ?? []),
    saveThread: async (thread: string, saved: Message[]) => void threads.set(thread, structuredClone(saved)),
  }
  const org = await freshOrg()
  return { persistence: { stores: { messages } }, checkpoints: createCheckpointStore({ ...org, externalBlobs: true, messages }) }
})
