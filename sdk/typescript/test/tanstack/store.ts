// The types of TanStack's checkpoint store, as its documentation describes them.
// They are written apart from those of the adapter, so that the compiler can tell
// whether the adapter fits.

/** One message of a conversation. */
export interface ModelMessage {
  role: 'user' | 'assistant' | 'tool'
  content: string | null | Array<{ type: string; content: string }>
  toolCallId?: string
}

export interface SandboxCheckpoint {
  id: string
  threadId: string
  parentCheckpointId: string | null
  createdAt: number
  reason: 'automatic' | 'named' | 'fork-root'
  label?: string
  sourceRunId?: string
  files: ReadonlyArray<{ path: string; kind: 'file'; blobKey: string; size: number } | { path: string; kind: 'dir' }>
  conversation: ReadonlyArray<ModelMessage>
  artifacts: ReadonlyArray<{ artifactId: string; name: string; mimeType: string; size: number; blobKey: string; createdAt: number }>
}

export interface SandboxCheckpointWriter {
  threadId: string
  ownerToken: string
  fence: number
}

export interface SandboxCheckpointWriterLease extends SandboxCheckpointWriter {
  expiresAt: number
  renewAfterMs: number
  renew: () => Promise<{ expiresAt: number }>
  release: () => Promise<void>
}

export interface SandboxCheckpointStore {
  get: (id: string) => Promise<SandboxCheckpoint | null>
  list: (threadId: string) => Promise<SandboxCheckpoint[]>
  getHead: (threadId: string) => Promise<string | null>
  append: (input: { checkpoint: SandboxCheckpoint; expectedHeadId: string | null; writer: SandboxCheckpointWriter }) => Promise<{ headId: string }>
  deleteHead: (input: { threadId: string; checkpointId: string; writer: SandboxCheckpointWriter }) => Promise<void>
  acquireWriter: (threadId: string) => Promise<SandboxCheckpointWriterLease>
  listBlobReferences: () => Promise<Array<{ key: string; references: number }>>
  forkFromCheckpoint?: (input: {
    sourceThreadId: string
    sourceCheckpointId: string
    destinationThreadId: string
    destinationCheckpointId: string
    createdAt: number
    writer: SandboxCheckpointWriter
  }) => Promise<{ checkpoint: SandboxCheckpoint }>
}

/** Anything that keeps bytes by key: Cairn's, or a bucket. */
export interface SandboxBlobs {
  get: (key: string) => Promise<{ arrayBuffer: () => Promise<ArrayBuffer> } | null>
  head: (key: string) => Promise<unknown>
  put: (key: string, body: Uint8Array<ArrayBuffer>) => Promise<unknown>
}
