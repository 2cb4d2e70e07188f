;;; hearth.el --- ghost text and chats by hearthd  -*- lexical-binding: t; -*-

;; Package-Requires: ((emacs "27.1"))
;; SPDX-License-Identifier: MIT

;;; Commentary:

;; `hearth-mode' shows a completion as ghost text while one types: TAB takes all of it, M-f a word, C-e a line, C-g
;; dismisses it, and so does any key that it does not begin with, which also cancels what is being generated.
;; `hearth-chat' is a conversation in a buffer.  Nothing is needed but Emacs and a hearth that is installed: this file
;; speaks hearthd's protocol (libclient/PROTOCOL.md) over its socket, MessagePack included.  Nothing here waits for a
;; model.

;;; Code:

(require 'cl-lib)
(require 'subr-x)

(defgroup hearth nil "Completions and chats by hearthd." :group 'tools)
(defcustom hearth-model nil "The model's name; nil is the daemon's default." :type '(choice (const nil) string))
(defcustom hearth-delay 0.2 "Seconds of no typing before it asks; nil: only by a command."
  :type '(choice (const nil) number))
(defcustom hearth-max-tokens 64 "Tokens of a completion, at most." :type 'integer)
(defcustom hearth-prefix-lines 256 "Lines before point that the model sees." :type 'integer)
(defcustom hearth-suffix-lines 64 "Lines after point that the model sees." :type 'integer)
(defcustom hearth-extra-buffers 8 "Other buffers of which the model sees a part." :type 'integer)
(defcustom hearth-extra-lines 64 "Lines of each of them, around its point." :type 'integer)

;;; MessagePack

(defun hearth--bytes (n width)
  "The integer N in WIDTH bytes, big endian."
  (let (out)
    (dotimes (_ width) (push (logand n 255) out) (setq n (ash n -8)))
    (apply #'unibyte-string out)))

(defun hearth--head (n short long16 long32 &optional fix max)
  "How a length N begins: FIX below MAX, or SHORT (8 bits), LONG16, LONG32."
  (cond ((and fix (< n max)) (unibyte-string (logior fix n)))
        ((and short (< n 256)) (concat (unibyte-string short) (hearth--bytes n 1)))
        ((< n 65536) (concat (unibyte-string long16) (hearth--bytes n 2)))
        (t (concat (unibyte-string long32) (hearth--bytes n 4)))))

(defun hearth--pack (v)
  "V as MessagePack: t, :false, nil, numbers, strings, vectors, alists."
  (cond ((eq v t) "\xc3") ((eq v :false) "\xc2") ((null v) "\xc0")
        ((integerp v) (cond ((<= 0 v 127) (unibyte-string v))
                            ((>= v 0) (concat "\xcf" (hearth--bytes v 8)))
                            (t (concat "\xd3" (hearth--bytes (logand v (1- (ash 1 64))) 8)))))
        ((floatp v) (hearth--pack-float v))
        ((stringp v) (let ((s (encode-coding-string v 'utf-8 t)))
                       (concat (hearth--head (length s) #xd9 #xda #xdb #xa0 32) s)))
        ((vectorp v) (concat (hearth--head (length v) nil #xdc #xdd #x90 16) (mapconcat #'hearth--pack v "")))
        ((consp v) (let ((given (cl-remove-if-not #'cdr v)))
                     (concat (hearth--head (length given) nil #xde #xdf #x80 16)
                             (mapconcat (lambda (kv) (concat (hearth--pack (car kv)) (hearth--pack (cdr kv))))
                                        given ""))))
        (t (error "hearth: %S has no form in MessagePack" v))))

(defun hearth--pack-float (v)
  (let* ((negative (< v 0)) (parts (frexp (abs v))) (mantissa (car parts)) (exponent (+ (cdr parts) 1022)))
    (concat "\xcb"
            (hearth--bytes (logior (if negative (ash 1 63) 0)
                                   (if (= v 0) 0 (logior (ash exponent 52)
                                                         (logand (truncate (ldexp mantissa 53)) (1- (ash 1 52))))))
                           8))))

(defvar hearth--in nil "The bytes that are being decoded.")
(defvar hearth--at 0 "Where in them.")

(defun hearth--take (n)
  "The next N bytes as a string; throws `short' where they are not there yet."
  (when (> (+ hearth--at n) (length hearth--in)) (throw 'short 'short))
  (prog1 (substring hearth--in hearth--at (+ hearth--at n)) (setq hearth--at (+ hearth--at n))))

(defun hearth--number (width)
  (cl-reduce (lambda (n b) (logior (ash n 8) b)) (hearth--take width) :initial-value 0))

(defun hearth--signed (width)
  (let ((n (hearth--number width)) (bits (* 8 width)))
    (if (>= n (ash 1 (1- bits))) (- n (ash 1 bits)) n)))

(defun hearth--float (width exponent-bits)
  (let* ((n (hearth--number width)) (bits (* 8 width)) (mantissa-bits (- bits 1 exponent-bits))
         (exponent (logand (ash n (- mantissa-bits)) (1- (ash 1 exponent-bits))))
         (mantissa (logand n (1- (ash 1 mantissa-bits)))) (bias (1- (ash 1 (1- exponent-bits))))
         (value (if (= exponent 0) (ldexp (float mantissa) (- 1 bias mantissa-bits))
                  (ldexp (float (logior mantissa (ash 1 mantissa-bits))) (- exponent bias mantissa-bits)))))
    (if (= 0 (ash n (- (1- bits)))) value (- value))))

(defun hearth--text (n) (decode-coding-string (hearth--take n) 'utf-8 t))
(defun hearth--array (n) (vconcat (cl-loop repeat n collect (hearth--unpack))))
(defun hearth--map (n)
  (cl-loop repeat n collect (let ((k (hearth--unpack))) (cons k (hearth--unpack)))))

(defun hearth--unpack ()
  "The next value of `hearth--in'; throws `short' where it is not whole."
  (let ((b (aref (hearth--take 1) 0)))
    (cond ((< b #x80) b) ((< b #x90) (hearth--map (logand b 15))) ((< b #xa0) (hearth--array (logand b 15)))
          ((< b #xc0) (hearth--text (logand b 31))) ((>= b #xe0) (- b 256))
          (t (pcase b
               (#xc0 nil) (#xc2 :false) (#xc3 t)
               (#xc4 (hearth--take (hearth--number 1))) (#xc5 (hearth--take (hearth--number 2)))
               (#xc6 (hearth--take (hearth--number 4)))
               (#xca (hearth--float 4 8)) (#xcb (hearth--float 8 11))
               (#xcc (hearth--number 1)) (#xcd (hearth--number 2)) (#xce (hearth--number 4)) (#xcf (hearth--number 8))
               (#xd0 (hearth--signed 1)) (#xd1 (hearth--signed 2)) (#xd2 (hearth--signed 4)) (#xd3 (hearth--signed 8))
               (#xd9 (hearth--text (hearth--number 1))) (#xda (hearth--text (hearth--number 2)))
               (#xdb (hearth--text (hearth--number 4)))
               (#xdc (hearth--array (hearth--number 2))) (#xdd (hearth--array (hearth--number 4)))
               (#xde (hearth--map (hearth--number 2))) (#xdf (hearth--map (hearth--number 4)))
               (_ (error "hearth: byte %x is no MessagePack of the protocol" b)))))))

(defun hearth--get (m key) (cdr (assoc key m)))

;;; The connection

(defvar hearth--process nil)
(defvar hearth--pending "" "Bytes of a frame that is not whole.")
(defvar hearth--handlers (make-hash-table :test #'equal) "Request id to a function of an event and its body.")
(defvar hearth--streams (make-hash-table) "Number of a stream to its request id.")
(defvar hearth--answers (make-hash-table) "Message id to a function of an error and a result.")
(defvar hearth--default-model nil)
(defvar hearth--count 0)

(defun hearth--own-p (folder)
  "Whether FOLDER is the user's, and closed to all others.
Anybody can make a folder in /tmp: what stands in the buffers must not go there."
  (let ((a (file-attributes folder 'integer)))
    (and (eq t (file-attribute-type a)) (= (user-uid) (file-attribute-user-id a))
         (string-suffix-p "------" (file-attribute-modes a)))))

(defun hearth--sockets ()
  "Where a daemon may listen, the first one first (PROTOCOL.md 1)."
  (let ((runtime (getenv "XDG_RUNTIME_DIR")) (tmp (format "/tmp/hearth-%d" (user-uid))) (system "/run/hearth/hearth.sock"))
    (cond ((getenv "HEARTH_SOCKET") (list (getenv "HEARTH_SOCKET")))
          (runtime (list (concat runtime "/hearth/hearth.sock") system))
          ((and (/= (user-uid) 0) (hearth--own-p tmp)) (list (concat tmp "/hearth.sock") system))
          (t (list system)))))

(defun hearth--open (path)
  (ignore-errors (make-network-process :name "hearth" :family 'local :service path :coding 'binary :noquery t
                                       :filter #'hearth--filter :sentinel #'hearth--sentinel)))

(defun hearth--send (&rest message)
  (process-send-string hearth--process (hearth--pack (vconcat message))))

(defun hearth--call (method params back)
  "Ask for METHOD with PARAMS; BACK gets an error's text or nil, and the result."
  (cl-incf hearth--count)
  (puthash hearth--count back hearth--answers)
  (hearth--send 0 hearth--count method (vector params)))

(defun hearth--on-event (event body)
  (let* ((stream (hearth--get body "stream"))
         (id (or (hearth--get body "request") (gethash stream hearth--streams)))
         (handle (and id (gethash id hearth--handlers))))
    (pcase event
      ("stream.begin" (puthash stream id hearth--streams))
      ((or "stream.end" "stream.error")
       (remhash id hearth--handlers)
       (maphash (lambda (s r) (when (equal r id) (remhash s hearth--streams))) hearth--streams))
      ("notice" (unless handle (message "hearth: %s" (hearth--get body "message")))))
    (when handle (funcall handle event body))))

(defun hearth--on-message (m)
  (pcase (aref m 0)
    (1 (let ((back (gethash (aref m 1) hearth--answers)))
         (remhash (aref m 1) hearth--answers)
         (when back (funcall back (and (aref m 2) (aref (aref m 2) 1)) (aref m 3)))))
    (2 (hearth--on-event (aref m 1) (aref (aref m 2) 0)))))

(defun hearth--filter (_process bytes)
  (setq hearth--pending (concat hearth--pending bytes))
  (let ((more t))
    (while more
      (let* ((hearth--in hearth--pending) (hearth--at 0) (m (catch 'short (hearth--unpack))))
        (if (eq m 'short) (setq more nil)
          (setq hearth--pending (substring hearth--pending hearth--at))
          (hearth--on-message m))))))

(defun hearth--sentinel (process _change)
  "What awaits an answer of a connection that has ended gets an error.
Else a chat would wait for its answer for ever."
  (when (and (eq process hearth--process) (not (process-live-p process)))
    (let ((handlers (hash-table-values hearth--handlers)) (answers (hash-table-values hearth--answers))
          (why "CONNECT: the connection to hearthd has ended"))
      (clrhash hearth--handlers)
      (clrhash hearth--streams)
      (clrhash hearth--answers)
      (dolist (handle handlers) (funcall handle "stream.error" `(("error" . [0 ,why]))))
      (dolist (back answers) (funcall back why nil)))))

(defun hearth--connect ()
  "Whether a daemon is connected, or answers."
  (or (process-live-p hearth--process)
      (ignore-errors
        (setq hearth--pending "" hearth--process (or (cl-some #'hearth--open (hearth--sockets)) (error "No daemon")))
        (clrhash hearth--handlers)
        (clrhash hearth--streams)
        (clrhash hearth--answers)
        (hearth--call "hello" '(("client" . "hearth.el")) #'ignore)
        t)))

(defun hearth--with-model (back)
  "Call BACK once a daemon is connected and its default model known.
The hearth command starts a daemon where none answers."
  (cond ((not (hearth--connect))
         (make-process :name "hearth-start" :command '("hearth" "status") :noquery t
                       :sentinel (lambda (p _)
                                   (when (eq (process-status p) 'exit)
                                     (if (and (= 0 (process-exit-status p)) (hearth--connect)) (hearth--with-model back)
                                       (message "hearth: no daemon answers"))))))
        ((or hearth-model hearth--default-model) (funcall back))
        (t (hearth--call "models.list" '(("details" . :false))
                         (lambda (why result)
                           (if why (message "hearth: %s" why)
                             (setq hearth--default-model (hearth--get result "default_model"))
                             (funcall back)))))))

(defun hearth--generate (params handle)
  "Begin a generation with PARAMS; HANDLE gets its events.  Returns its id."
  (let ((id (format "emacs-%d-%d-%d" (emacs-pid) (truncate (* 1000 (float-time))) (cl-incf hearth--count))))
    (puthash id handle hearth--handlers)
    (hearth--send 2 "generate" (vector (append `(("request" . ,id) ("model" . ,(or hearth-model hearth--default-model)))
                                               params)))
    id))

(defun hearth--cancel (id)
  (when (and (gethash id hearth--handlers) (process-live-p hearth--process))
    (hearth--send 2 "cancel" (vector `(("request" . ,id))))))

;;; Ghost text

(defface hearth-ghost '((t :inherit shadow)) "What may be taken into the buffer.")
(defvar-local hearth--ghost nil
  "The overlay that shows it; its text is the property `hearth-text'.")
(defvar-local hearth--request nil "The id of the generation that makes it.")
(defvar-local hearth--seen nil "Point and modification tick when they were looked at last.")
(defvar hearth--timer nil)

(defvar hearth-ghost-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "TAB") #'hearth-accept)
    (define-key map (kbd "M-f") #'hearth-accept-word)
    (define-key map (kbd "C-e") #'hearth-accept-line)
    (define-key map (kbd "C-g") #'hearth-dismiss)
    map)
  "Keys while ghost text is shown.")
(define-minor-mode hearth-ghost-mode "Ghost text is shown." :keymap hearth-ghost-map)

(defun hearth--ghost-text () (if hearth--ghost (overlay-get hearth--ghost 'hearth-text) ""))

(defun hearth--show (text)
  "Show TEXT as ghost text where the overlay is."
  (overlay-put hearth--ghost 'hearth-text text)
  (overlay-put hearth--ghost 'after-string
               (and (not (string-empty-p text))
                    (propertize text 'face 'hearth-ghost 'cursor t)))
  (hearth-ghost-mode (if (string-empty-p text) -1 1)))

(defun hearth-dismiss ()
  "Take the ghost text away, and cancel what makes it."
  (interactive)
  (when hearth--timer (cancel-timer hearth--timer))
  (when hearth--request
    (hearth--cancel hearth--request)
    (remhash hearth--request hearth--handlers))
  (when hearth--ghost (delete-overlay hearth--ghost))
  (setq hearth--ghost nil hearth--request nil)
  (when hearth-ghost-mode (hearth-ghost-mode -1)))

(defconst hearth--line 128
  "Characters that a line may have on average.
Without a bound a file of one long line, as a program writes it, would not fit
into the model's context, nor into a frame.")
(defun hearth--before (lines) "Where LINES before point begin."
       (max (line-beginning-position (- 1 lines)) (- (point) (* hearth--line (1+ lines)))))
(defun hearth--behind (lines) "Where LINES behind point end."
       (min (line-end-position (1+ lines)) (+ (point) (* hearth--line (1+ lines)))))
(defun hearth--around (before after)
  "The text from BEFORE lines before point to AFTER lines behind it."
  (buffer-substring-no-properties (hearth--before before) (hearth--behind after)))

(defun hearth--name (buffer) (file-relative-name (buffer-file-name buffer) default-directory))

(defun hearth--other-files ()
  "Parts of other files' buffers, ordered by name.
A list that stays is KV that stays."
  (let* ((half (/ hearth-extra-lines 2))
         (others (cl-remove-if-not (lambda (b) (and (buffer-file-name b) (not (eq b (current-buffer))))) (buffer-list)))
         (sorted (sort others (lambda (a b) (string< (buffer-file-name a) (buffer-file-name b))))))
    (vconcat (mapcar (lambda (b) `(("name" . ,(hearth--name b))
                                   ("text" . ,(with-current-buffer b (concat (hearth--around half half) "\n")))))
                     (seq-take sorted hearth-extra-buffers)))))

(defun hearth--ask (buffer)
  "Ask for a completion at point of BUFFER."
  (let* ((extra (hearth--other-files))
         (ghost (make-overlay (point) (point)))
         (prefix (buffer-substring-no-properties (hearth--before hearth-prefix-lines) (point)))
         (suffix (buffer-substring-no-properties (point) (hearth--behind hearth-suffix-lines))))
    (setq hearth--ghost ghost)
    (overlay-put ghost 'hearth-text "")
    (setq hearth--request
          (hearth--generate
           `(("prefix" . ,prefix) ("suffix" . ,suffix) ("max_tokens" . ,hearth-max-tokens)
             ("sampling" . (("temperature" . 0)))
             ("extra" . ,(and (> (length extra) 0) extra))
             ("file" . ,(and (> (length extra) 0) buffer-file-name (hearth--name buffer))))
           (lambda (event body)
             (when (and (buffer-live-p buffer) (eq ghost (buffer-local-value 'hearth--ghost buffer)))
               (with-current-buffer buffer
                 (pcase event
                   ("stream.tokens" (hearth--show (concat (hearth--ghost-text) (hearth--get body "text"))))
                   ("stream.error" (message "hearth: %s" (aref (hearth--get body "error") 1)))))))))))

(defun hearth-suggest ()
  "Ask for a completion at point."
  (interactive)
  (hearth-dismiss)
  (let ((buffer (current-buffer)) (at (cons (point) (buffer-chars-modified-tick))))
    (hearth--with-model
     (lambda () (when (buffer-live-p buffer)
                  (with-current-buffer buffer
                    (when (equal at (cons (point) (buffer-chars-modified-tick))) (hearth--ask buffer))))))))

(defun hearth--typed-on ()
  "Whether what was typed is what the ghost text says, which then goes on."
  (let ((text (hearth--ghost-text)))
    (when (and hearth--ghost (not (string-empty-p text)) (>= (point) (overlay-start hearth--ghost)))
      (let ((typed (buffer-substring-no-properties (overlay-start hearth--ghost) (point))))
        (when (string-prefix-p typed text)
          (move-overlay hearth--ghost (point) (point))
          (hearth--show (substring text (length typed)))
          t)))))

(defun hearth--after-command ()
  (let ((now (cons (point) (buffer-chars-modified-tick))))
    (unless (equal now hearth--seen)
      (let ((changed (not (equal (cdr now) (cdr hearth--seen)))) (buffer (current-buffer)))
        (setq hearth--seen now)
        (unless (hearth--typed-on)
          (hearth-dismiss)
          (when (and changed hearth-delay)
            (setq hearth--timer
                  (run-with-idle-timer hearth-delay nil
                                       (lambda () (when (eq buffer (window-buffer)) (hearth-suggest)))))))))))

(defun hearth--accept (n)
  "Take N characters of the ghost text into the buffer."
  (let ((text (hearth--ghost-text)))
    (goto-char (overlay-start hearth--ghost))
    (insert (substring text 0 n))
    (move-overlay hearth--ghost (point) (point))
    (setq hearth--seen (cons (point) (buffer-chars-modified-tick)))
    (if (= n (length text)) (hearth-dismiss) (hearth--show (substring text n)))))

(defun hearth-accept () "Take all of the ghost text." (interactive) (hearth--accept (length (hearth--ghost-text))))
(defun hearth-accept-word () "Take a word of it." (interactive)
       (string-match "\\`[[:space:]\n]*\\(?:[[:alnum:]_]+\\|[^[:alnum:]_[:space:]]+\\|\\'\\)" (hearth--ghost-text))
       (hearth--accept (match-end 0)))
(defun hearth-accept-line () "Take a line of it." (interactive)
       (string-match "\\`\n*[^\n]*" (hearth--ghost-text))
       (hearth--accept (match-end 0)))

;;;###autoload
(define-minor-mode hearth-mode
  "Show completions as ghost text while one types."
  :lighter " hearth"
  (if hearth-mode
      (progn (setq hearth--seen (cons (point) (buffer-chars-modified-tick)))
             (add-hook 'post-command-hook #'hearth--after-command nil t))
    (remove-hook 'post-command-hook #'hearth--after-command t)
    (hearth-dismiss)))

;;; A chat in a buffer

(defconst hearth--you "## You\n")
(defvar-local hearth-chat-session nil)

(define-derived-mode hearth-chat-mode text-mode "Hearth"
  "A chat with a model.
\\<hearth-chat-mode-map>\\[hearth-chat-send] sends what is written,
\\[hearth-chat-stop] stops the answer."
  (visual-line-mode 1))
(define-key hearth-chat-mode-map (kbd "C-c C-c") #'hearth-chat-send)
(define-key hearth-chat-mode-map (kbd "C-c C-k") #'hearth-chat-stop)

(defvar-local hearth--thinks nil "Whether what came last is reasoning.")

(defun hearth--append-tokens (buffer body)
  "Reasoning steps back; the answer comes after an empty line."
  (let ((thought (hearth--get body "reasoning")) (text (hearth--get body "text")))
    (with-current-buffer buffer
      (when thought
        (setq hearth--thinks t)
        (hearth--append buffer (propertize thought 'face 'shadow)))
      (unless (string-empty-p text)
        (when hearth--thinks (hearth--append buffer "\n\n"))
        (setq hearth--thinks nil)
        (hearth--append buffer text)))))

(defun hearth--append (buffer text)
  (with-current-buffer buffer
    (let ((at-end (= (point) (point-max))))
      (save-excursion (goto-char (point-max)) (insert text))
      (when at-end
        (goto-char (point-max))
        (dolist (w (get-buffer-window-list buffer nil t)) (set-window-point w (point-max)))))))

(defun hearth-chat-send ()
  "Send what stands under the last \"## You\"; the answer streams in below."
  (interactive)
  (let* ((buffer (current-buffer))
         (from (save-excursion (goto-char (point-max)) (and (search-backward hearth--you nil t) (match-end 0))))
         (message (string-trim (buffer-substring-no-properties (or from (point-min)) (point-max)))))
    (when (and (not hearth--request) (not (string-empty-p message)))
      (goto-char (point-max))
      (hearth--with-model
       (lambda ()
         (with-current-buffer buffer
           (setq hearth--request
                 (hearth--generate
                  `(("session" . ,hearth-chat-session)
                    ("messages" . [(("role" . "user") ("content" . ,message))]))
                  (lambda (event body)
                    (when (buffer-live-p buffer)
                      (pcase event
                        ("stream.begin" (hearth--append buffer (format "\n\n## %s\n" (hearth--get body "model"))))
                        ("stream.tokens" (hearth--append-tokens buffer body))
                        ((or "stream.end" "stream.error")
                         (let ((why (if (equal event "stream.error") (aref (hearth--get body "error") 1)
                                      (hearth--get body "error"))))
                           (hearth--append buffer (concat (and why (format "\n\n> %s" why)) "\n\n" hearth--you)))
                         (with-current-buffer buffer (setq hearth--request nil hearth--thinks nil))))))))))))))

(defun hearth-chat-stop ()
  "Stop the answer; what there is of it stays."
  (interactive)
  (when hearth--request (hearth--cancel hearth--request)))

;;;###autoload
(defun hearth-chat (session)
  "A chat in a buffer, in SESSION: a name, or empty for a new one."
  (interactive "sSession (empty: a new one): ")
  (let ((name (if (string-empty-p session) (format-time-string "emacs-%Y%m%d-%H%M%S") session)))
    (pop-to-buffer (generate-new-buffer (format "*hearth %s*" name)))
    (hearth-chat-mode)
    (setq hearth-chat-session name)
    (insert hearth--you)))

(provide 'hearth)
;;; hearth.el ends here
