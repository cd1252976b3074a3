// A server of the built site on a port of the loopback, as any host of static pages is.
import fs from 'node:fs/promises'
import http from 'node:http'
import path from 'node:path'

const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.json': 'application/json', '.png': 'image/png', '.woff2': 'font/woff2' }

export async function serve(directory) {
  const server = http.createServer(async (request, response) => {
    const name = decodeURIComponent(new URL(request.url, 'http://site').pathname).replace(/\/$/, '/index.html')
    try {
      const body = await fs.readFile(path.join(directory, path.normalize(name)))
      response.writeHead(200, { 'content-type': types[path.extname(name)] ?? 'application/octet-stream' }).end(body)
    } catch {
      response.writeHead(404, { 'content-type': 'text/html' }).end(await fs.readFile(path.join(directory, '404.html')))
    }
  })
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening))
  return { address: `http://127.0.0.1:${server.address().port}`, close: () => server.close() }
}
