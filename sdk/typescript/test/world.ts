// A running Cairn server for the tests: a control of it says what they need.
import type { ConnectionOptions } from '@cairnstate/tanstack-ai'
import type { Clock } from './conformance.js'

const control = process.env.CAIRN_TEST_CONTROL

async function ask(what: string, body: object): Promise<Response> {
  if (control === undefined) throw new Error('these tests are run by go test ./tests/typescript, which starts a server')
  const answer = await fetch(control + what, { method: 'POST', body: JSON.stringify(body) })
  if (!answer.ok) throw new Error(`${what}: ${answer.status} ${await answer.text()}`)
  return answer
}

type Org = ConnectionOptions & { token: string; id: string }

/** How to ask a fresh org with a token for all its threads; its leases go by the clock. */
export async function freshOrg(clock?: Clock): Promise<Org> {
  const [org] = await orgWith('*')
  if (clock === undefined) return org!
  let shown: number | undefined
  return {
    ...org!,
    async fetch(to, init) {
      const now = clock.now
      if (now !== shown) await ask('/clock', { id: org!.id, now })
      shown = now
      return fetch(to, init)
    },
  }
}

/** How to ask a fresh org with a token for each thread. */
export async function orgWith(...threads: string[]): Promise<Org[]> {
  const { url, id, tokens } = (await (await ask('/orgs', { threads })).json()) as { url: string; id: string; tokens: string[] }
  return tokens.map((token) => ({ url, id, token }))
}

/** Has the server crash and come back. */
export async function restart(): Promise<void> {
  await ask('/restart', {})
}
