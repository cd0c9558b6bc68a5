// Transcribes speech.json with both of OpenAI's JavaScript clients, and prints the transcripts.
// Arguments: the server's port. The clients always use TLS, so this starts a proxy with a certificate of its own.
import { readFileSync } from "node:fs";
import net from "node:net";
import tls from "node:tls";
import OpenAI from "openai";
import { OpenAIRealtimeWebSocket } from "openai/realtime/websocket";
import { OpenAIRealtimeWS } from "openai/realtime/ws";
import { WebSocket } from "ws";

globalThis.WebSocket ??= WebSocket; // browsers and newer versions of Node have it

const packets = JSON.parse(readFileSync("speech.json"));
const credentials = { key: readFileSync("key.pem"), cert: readFileSync("cert.pem") };
const proxy = tls.createServer(credentials, (client) => {
  const server = net.connect(Number(process.argv[2]), "127.0.0.1");
  client.pipe(server).pipe(client);
  for (const each of [client, server]) each.on("error", () => { client.destroy(); server.destroy(); });
});
await new Promise((done) => proxy.listen(0, "127.0.0.1", done));
const client = new OpenAI({ apiKey: "none", baseURL: `https://127.0.0.1:${proxy.address().port}/v1` });

function transcribed(Connection) {
  return new Promise((resolve, reject) => {
    const connection = new Connection({ model: "tiny.en", dangerouslyAllowBrowser: true }, client);
    let text = "";
    connection.on("error", reject);
    connection.on("session.created", () => {
      const input = { format: { type: "audio/pcm", rate: 24000 }, turn_detection: { type: "server_vad" } };
      connection.send({ type: "session.update", session: { type: "transcription", audio: { input } } });
    });
    connection.on("session.updated", () => {
      for (const audio of packets) connection.send({ type: "input_audio_buffer.append", audio });
    });
    connection.on("conversation.item.input_audio_transcription.delta", ({ delta }) => (text += delta));
    connection.on("conversation.item.input_audio_transcription.completed", ({ transcript }) => {
      connection.close();
      if (transcript === text) resolve(transcript);
      else reject(new Error(`the deltas are ${text}, the transcript ${transcript}`));
    });
  });
}

const texts = { ws: await transcribed(OpenAIRealtimeWS), websocket: await transcribed(OpenAIRealtimeWebSocket) };
console.log(JSON.stringify(texts));
process.exit(0);
