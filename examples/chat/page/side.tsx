/** The panel beside the chat: present users, and faults to cause. */

import type { PresenceMember } from '@hanzoai/pubsub';
import { useState } from 'react';

import { killWriter } from './backend.js';
import { Avatar, otherThan } from './users.js';

interface SideProps {
  readonly users: readonly PresenceMember[];
  readonly user: string;
  readonly scribe: string;
}

export function Side({ users, user, scribe }: SideProps) {
  return (
    <aside>
      <People users={users} user={user} scribe={scribe} />
      <Breakage user={user} />
    </aside>
  );
}

function People({ users, user, scribe }: SideProps) {
  const sorted = users.toSorted((a, b) => a.user_id.localeCompare(b.user_id));
  return (
    <section className="card" aria-labelledby="present">
      <h2 id="present">
        Present <span className="quiet number">{users.length}</span>
      </h2>
      <ul className="people">
        {sorted.map(({ user_id, status }) => (
          <li key={user_id} data-user={user_id}>
            <Avatar user={user_id} />
            <b>{user_id}</b>
            <span className={status === 'typing' ? 'typing' : 'quiet'}>
              {[
                user_id === user && 'this tab',
                user_id === scribe && 'answers',
                status === 'typing' ? 'typing …' : status,
              ]
                .filter(Boolean)
                .join(' · ')}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Breakage({ user }: { readonly user: string }) {
  const [note, setNote] = useState('');
  async function kill() {
    try {
      const { pid } = await killWriter();
      setNote(pid === null ? 'The next process is about to start.' : `Killed process ${pid}.`);
    } catch (error) {
      setNote(error instanceof Error ? error.message : String(error));
    }
  }
  return (
    <section className="card" aria-labelledby="break">
      <h2 id="break">Interrupt an answer</h2>
      <p className="quiet">Every tab ends with the same text, and no word appears twice.</p>
      <div className="breaks">
        <a
          className="ghost"
          href={`?user=${otherThan(user)}`}
          target="_blank"
          rel="noopener noreferrer"
        >
          Open a second tab
        </a>
        <button type="button" className="ghost" onClick={() => location.reload()}>
          Reload this tab
        </button>
        <button type="button" className="ghost danger" onClick={kill}>
          Kill the writer
        </button>
      </div>
      <p className="hint" role="status">
        {note}
      </p>
    </section>
  );
}
