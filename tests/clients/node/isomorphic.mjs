// Drives isomorphic-git: URL TOKEN DIR STEP. Prints the commit that the step ends on.
import fs from 'node:fs';
import path from 'node:path';
import git from 'isomorphic-git';
import http from 'isomorphic-git/http/node';

const [url, token, dir, step] = process.argv.slice(2);
const author = { name: 'Sandbox worker', email: 'worker@example.com' };
const at = { fs, http, dir, onAuth: () => ({ username: 't', password: token }), onAuthFailure: () => ({ cancel: true }) };

async function push(ref) {
  const result = await git.push({ ...at, ref, remote: 'origin' });
  if (!result.ok) throw new Error(`push of ${ref}: ${JSON.stringify(result)}`);
}

let ref = 'HEAD';
switch (step) {
  case 'clone':
    await git.clone({ ...at, url });
    break;
  case 'shallow':
    await git.clone({ ...at, url, depth: 1, singleBranch: true });
    break;
  case 'fetch':
    await git.fetch({ ...at, remote: 'origin' });
    ref = 'refs/remotes/origin/main';
    break;
  case 'push':
    await git.branch({ fs, dir, ref: 'isomorphic', checkout: true });
    fs.writeFileSync(path.join(dir, 'isomorphic.txt'), 'from isomorphic-git\n');
    await git.add({ fs, dir, filepath: 'isomorphic.txt' });
    await git.commit({ fs, dir, message: 'Work of isomorphic-git', author });
    await git.annotatedTag({ fs, dir, ref: 'isomorphic-v1', message: 'its tag', tagger: author });
    await push('isomorphic');
    await push('refs/tags/isomorphic-v1');
    break;
  default:
    throw new Error(`unknown step ${step}`);
}
console.log(await git.resolveRef({ fs, dir, ref }));
