// What the compiler has to accept: the adapter where TanStack AI asks for its own
// types. Nothing of it is run.
import { createBlobStore, createCheckpointStore, type ConnectionOptions } from '@cairnstate/tanstack-ai'
import { captureSandboxCheckpoint, restoreSandboxCheckpoint, type SandboxBlobs, type SandboxCheckpoint, type SandboxCheckpointStore } from './tanstack/index.js'

declare const options: ConnectionOptions
declare const rest: Omit<Parameters<typeof captureSandboxCheckpoint>[0], 'checkpoints' | 'blobs'>
/** Transcripts as `@tanstack/ai-persistence` has them. */
declare const messages: {
  loadThread: (threadId: string) => Promise<Array<SandboxCheckpoint['conversation'][number]>>
  saveThread: (threadId: string, messages: Array<SandboxCheckpoint['conversation'][number]>) => Promise<void>
}

export const plain: SandboxCheckpointStore = createCheckpointStore(options)
export const typed: SandboxCheckpointStore = createCheckpointStore<SandboxCheckpoint>(options)
export const forkable: Required<SandboxCheckpointStore> = createCheckpointStore({ ...options, messages })
export const blobs: SandboxBlobs = createBlobStore(options)

const checkpoints = createCheckpointStore(options)
await captureSandboxCheckpoint({ ...rest, checkpoints, blobs: createBlobStore({ ...options, threadId: rest.threadId }) })
await restoreSandboxCheckpoint({ ...rest, checkpoints, blobs })

/** A later kind of checkpoint, with entries that this version does not know. */
interface Later extends Omit<SandboxCheckpoint, 'files'> {
  files: ReadonlyArray<SandboxCheckpoint['files'][number] | { path: string; kind: 'link'; target: string }>
}
export const later: { append: (input: { checkpoint: Later; expectedHeadId: null; writer: { threadId: string; ownerToken: string; fence: number } }) => Promise<unknown> } =
  createCheckpointStore<Later>(options)

// @ts-expect-error a store without transcripts cannot fork
checkpoints.forkFromCheckpoint
// @ts-expect-error a token is needed
createCheckpointStore({ url: 'https://cairn.test' })
