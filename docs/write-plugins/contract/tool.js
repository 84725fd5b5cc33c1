// A tool in JavaScript, straight on the contract: no SDK yet. Built by hand; see ../contract.md.
import { caller, roomId } from 'conclave:plugin/call@0.1.0-draft';
import { log } from 'conclave:plugin/log@0.1.0-draft';

const inputSchema = JSON.stringify({
  type: 'object',
  properties: { text: { type: 'string', description: 'What to say.' } },
  required: ['text'],
  additionalProperties: false,
});

export const tools = {
  listTools() {
    return [{ name: 'shout', description: 'Says a text in capital letters.', inputSchema, outputSchema: undefined, idempotent: true, extra: [] }];
  },
  call(name, args) {
    log('info', `${name} for ${caller()} in ${roomId()}`);
    if (name !== 'shout') throw { tag: 'other', val: `there is no tool ${name}` };
    const { text } = JSON.parse(args);
    if (!text) throw { tag: 'invalid-arguments', val: 'text is empty' };
    return { content: text.toUpperCase(), value: undefined, attachments: [], followUpCalls: [] };
  },
};
