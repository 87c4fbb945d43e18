import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.eclipse.jgit.api.Git;
import org.eclipse.jgit.lib.PersonIdent;
import org.eclipse.jgit.lib.Ref;
import org.eclipse.jgit.transport.CredentialsProvider;
import org.eclipse.jgit.transport.PushResult;
import org.eclipse.jgit.transport.RefSpec;
import org.eclipse.jgit.transport.RemoteRefUpdate;
import org.eclipse.jgit.transport.UsernamePasswordCredentialsProvider;

/**
 * Drives JGit: URL TOKEN DIR STEP, where STEP is clone, shallow, fetch or push. It prints the commit that the step ends
 * on.
 */
public final class JGitClient {
  public static void main(String[] args) throws Exception {
    String url = args[0];
    CredentialsProvider token = new UsernamePasswordCredentialsProvider("t", args[1]);
    File dir = new File(args[2]);
    switch (args[3]) {
      case "clone" -> {
        try (Git git = Git.cloneRepository().setURI(url).setDirectory(dir).setCredentialsProvider(token).call()) {
          print(git, "HEAD");
        }
      }
      case "shallow" -> {
        try (Git git = Git.cloneRepository().setURI(url).setDirectory(dir).setDepth(1).setCredentialsProvider(token)
            .call()) {
          print(git, "HEAD");
        }
      }
      case "fetch" -> {
        try (Git git = Git.open(dir)) {
          git.fetch().setCredentialsProvider(token).call();
          print(git, "refs/remotes/origin/main");
        }
      }
      case "push" -> {
        try (Git git = Git.open(dir)) {
          push(git, dir, token);
          print(git, "HEAD");
        }
      }
      default -> throw new IllegalArgumentException(args[3]);
    }
  }

  private static void push(Git git, File dir, CredentialsProvider token) throws Exception {
    git.checkout().setCreateBranch(true).setName("jgit").call();
    Files.writeString(Path.of(dir.getPath(), "jgit.txt"), "from JGit\n");
    git.add().addFilepattern("jgit.txt").call();
    PersonIdent who = new PersonIdent("Sandbox worker", "worker@example.com");
    git.commit().setMessage("Work of JGit").setAuthor(who).setCommitter(who).setSign(false).call();
    Ref tag = git.tag().setName("jgit-v1").setMessage("JGit's tag").setTagger(who).setSigned(false).call();
    List<RefSpec> specs = List.of(new RefSpec("refs/heads/jgit"), new RefSpec(tag.getName()));
    for (PushResult result : git.push().setRefSpecs(specs).setCredentialsProvider(token).call()) {
      for (RemoteRefUpdate update : result.getRemoteUpdates()) {
        if (update.getStatus() != RemoteRefUpdate.Status.OK) {
          throw new IllegalStateException(update.toString());
        }
      }
    }
  }

  private static void print(Git git, String name) throws Exception {
    System.out.println(git.getRepository().resolve(name + "^{commit}").name());
  }
}
