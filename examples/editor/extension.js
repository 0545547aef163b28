// Starts `mlxcel lsp` for .mgraph files. Everything the editor shows comes from there.

const vscode = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");

let client;

async function start() {
  const command = vscode.workspace.getConfiguration("mgraph").get("server");
  const server = { command, args: ["lsp"], transport: TransportKind.stdio };
  client = new LanguageClient("mgraph", "mgraph", server, { documentSelector: [{ language: "mgraph" }] });
  try {
    await client.start();
  } catch (error) {
    client = undefined;
    vscode.window.showErrorMessage(
      `mgraph: \`${command} lsp\` cannot be started (${error.message}). Set \`mgraph.server\` to the mlxcel binary.`
    );
  }
}

async function stop() {
  const running = client;
  client = undefined;
  await running?.stop();
}

async function activate(context) {
  const restart = async () => {
    await stop();
    await start();
  };
  context.subscriptions.push(
    vscode.commands.registerCommand("mgraph.restart", restart),
    vscode.workspace.onDidChangeConfiguration((change) => change.affectsConfiguration("mgraph.server") && restart())
  );
  await start();
}

module.exports = { activate, deactivate: stop };
