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

/** How to ask a fresh org with a token for all its threads; its leases go by the clock. */
export async function freshOrg(clock?: Clock): Promise<ConnectionOptions & { token: string }> {
  const { url, token } = (await (await ask('/orgs', {})).json()) as { url: string; token: string }
  if (clock === undefined) return { url, token }
  let shown: number | undefined
  return {
    url,
    token,
    async fetch(to, init) {
      const now = clock.now
      if (now !== shown) await ask('/clock', { now })
      shown = now
      return fetch(to, init)
    },
  }
}
